#!/bin/bash
# Turn a Debian root file system into a node image for kind.
#
#   make-node.sh ROOT BINARIES KIND_MODULE KUBERNETES_VERSION
#
# kind publishes node images in a registry, which this machine may not reach. The script follows
# kind's images/base/Dockerfile, with Debian's containerd, runc and CNI plugins. Each image of the
# control plane contains one static binary. The script mounts file systems and starts processes: run
# it in its own mount and PID namespaces, so that these end with it.
set -euo pipefail
umask 022

root=$1 binaries=$2 kind=$3 version=$4
here=$(dirname "$(realpath "$0")")
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

in_root() { chroot "$root" "$@"; }

mount -t proc proc "$root/proc"

# kind's own files. In the Go module cache, files are read-only and not executable.
cp -r --no-preserve=mode,ownership "$kind/images/base/files/." "$root"
chmod 755 "$root"/kind/bin/* "$root/usr/local/bin/entrypoint"

# Remove the systemd units that are useless in a container.
units=$root/lib/systemd/system
rm -f "$units/sysinit.target.wants/systemd-tmpfiles-setup.service" \
  "$units"/{multi-user,local-fs,basic}.target.wants/* \
  "$units"/sockets.target.wants/*{udev,initctl}* \
  "$root"/etc/systemd/system/*.wants/*
echo ReadKMsg=no >> "$root/etc/systemd/journald.conf"
ln -sf /usr/lib/systemd/systemd "$root/sbin/init"
in_root systemctl enable kubelet.service containerd.service undo-mount-hacks.service
in_root systemctl mask systemd-binfmt.service

# Link Debian's containerd and CNI plugins to the paths that kind expects.
ln -s /usr/bin/containerd "$root/usr/local/bin/containerd"
mkdir -p "$root/opt/cni" "$root/etc/cni/net.d" "$root/etc/kubernetes/manifests"
ln -s /usr/lib/cni "$root/opt/cni/bin"
install -m 644 "$here/10-pods.conflist" "$root/etc/cni/net.d/"
# Without CAP_SYS_RESOURCE, containerd cannot lower the OOM score. No test depends on the score.
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' \
  "$root/etc/containerd/config.toml"
hook=/kind/bin/mount-product-files.sh
in_root ctr oci spec \
  | in_root jq --arg hook $hook '.hooks.createContainer = [{path: $hook}] | del(.process.rlimits)' \
  > "$root/etc/containerd/cri-base.json"

# Kubernetes. By default, the kubelet no longer starts with cgroup v1.
install -m 755 "$binaries"/{kubeadm,kubelet,kubectl} "$root/usr/bin/"
install -m 755 "$binaries/crictl" "$root/usr/local/bin/"
sed -i 's/^KUBELET_EXTRA_ARGS=/&--fail-cgroupv1=false /' "$root/etc/default/kubelet"
install -D -m 644 "$here/default-cni.yaml" "$root/kind/manifests/default-cni.yaml"
printf %s "$version" > "$root/kind/version"
install -m 644 "$here/20-refuse-early.conf" "$root/etc/systemd/system/kubelet.service.d/"

# kube-proxy is the only component that calls other programs: add them with their libraries.
add_packet_filter_tools() {
  local layer=$1 tools=(/usr/sbin/{xtables-nft-multi,nft,conntrack} /usr/bin/kmod)
  local libraries file name verb
  # iptables loads its extensions by name, and they need further libraries.
  libraries=$(in_root sh -c 'ldd "$@" /usr/lib/*/xtables/*.so' ldd "${tools[@]}" \
    | sed -n 's/.*[[:space:]]\(\/[^ ]*\) (0x.*/\1/p' | sort -u)
  # In Debian, /lib is a link to /usr/lib; create the same links in the image.
  mkdir -p "$layer"/usr/{lib,lib64,sbin,bin} "$layer/run"
  ln -s usr/{lib,lib64,sbin,bin} "$layer"
  for file in "${tools[@]}" $libraries; do
    file=/usr/${file#/}; file=${file/#\/usr\/usr/\/usr}
    install -D -m 755 "$root$file" "$layer$file"
  done
  (cd "$root" && cp -r --parents usr/lib/*/xtables "$layer")
  for name in iptables ip6tables; do
    for verb in "" -save -restore; do ln -s xtables-nft-multi "$layer/usr/sbin/$name$verb"; done
  done
  ln -s ../bin/kmod "$layer/usr/sbin/modprobe"
}

# Write one image in the archive format of `docker save`.
archive_image() {
  local tag=$1 name=$2 arch folder layer
  arch=$(in_root dpkg --print-architecture)
  folder=$(mktemp -d "$root.image.XXXX") layer=$folder/root
  mkdir -p "$layer/etc"
  install -D -m 755 "$binaries/$name" "$layer/usr/local/bin/$name"
  install -d -m 1777 "$layer/tmp"
  echo 'root:x:0:0:root:/:/' > "$layer/etc/passwd"
  if [ "$name" = kube-proxy ]; then add_packet_filter_tools "$layer"; fi
  tar -C "$layer" --owner 0 --group 0 -cf "$folder/layer.tar" .
  in_root jq -n --arg arch "$arch" --arg entry "/usr/local/bin/$name" \
    --arg layer "sha256:$(sha256sum "$folder/layer.tar" | cut -d' ' -f1)" --arg path "PATH=$PATH" \
    '{architecture: $arch, os: "linux", config: {Entrypoint: [$entry], Env: [$path]},
      rootfs: {type: "layers", diff_ids: [$layer]}}' > "$folder/config.json"
  in_root jq -n --arg tag "$tag" \
    '[{Config: "config.json", RepoTags: [$tag], Layers: ["layer.tar"]}]' > "$folder/manifest.json"
  tar -C "$folder" -c manifest.json config.json layer.tar
  rm -r "$folder"
}

# Import the images into the content store of the node's containerd. The node unpacks them later.
in_root containerd --log-level warn &
containerd=$!
until in_root ctr version > /dev/null 2>&1; do
  kill -0 "$containerd"
  sleep 0.1
done
sandbox=$(sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$root/etc/containerd/config.toml")
for tag in $("$binaries/kubeadm" config images list --kubernetes-version "$version") "$sandbox"; do
  name=${tag##*/}
  archive_image "$tag" "${name%:*}" \
    | in_root ctr --namespace k8s.io images import --no-unpack --digests -
done
kill "$containerd"
wait "$containerd" || true
rm -rf "$root"/run/*
