// How stock BullMQ clients for Node connect to each kind of Redis, by the URL that the operator has.
// The options of ioredis for Sentinel and Cluster are those that docs/redis-in-production.md recommends.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { Cluster, Redis } = createRequire(import.meta.url)("ioredis");
const PATIENT = { maxRetriesPerRequest: null };

function parse(url) {
  const [, scheme, user, password, hosts, path, query] =
    /^([a-z+]+):\/\/(?:([^:@]*)(?::([^@]*))?@)?([^/?]*)([^?]*)(?:\?(.*))?$/.exec(url);
  const given = new URLSearchParams(query);
  const files = { ca: "ssl_ca_certs", cert: "ssl_certfile", key: "ssl_keyfile" };
  const known = Object.entries(files).filter(([, name]) => given.has(name));
  const tls = Object.fromEntries(known.map(([name, option]) => [name, readFileSync(given.get(option))]));
  const nodes = hosts.split(",").map((each) => {
    const [host, port] = each.split(":");
    return { host, port: Number(port ?? (scheme.includes("sentinel") ? 26379 : 6379)) };
  });
  const access = {
    ...(user && { username: decodeURIComponent(user) }),
    ...(password && { password: decodeURIComponent(password) }),
    ...(scheme.startsWith("rediss") && { tls }),
  };
  return { kind: scheme.split("+")[1], nodes, path: path.split("/").slice(1), given, access };
}

function sentinelOptions({ nodes, path, given, access }) {
  return {
    sentinels: nodes,
    name: path[0],
    db: Number(path[1] ?? 0),
    ...access,
    sentinelUsername: given.get("sentinel_username") ?? undefined,
    sentinelPassword: given.get("sentinel_password") ?? undefined,
    ...(access.tls && given.get("sentinel_tls") !== "false" && { sentinelTLS: access.tls, enableTLSForSentinelMode: true }),
    // Without it, a client stays with a frozen master for more than a minute.
    failoverDetector: true,
    ...PATIENT,
  };
}

function cluster({ nodes, access }) {
  return new Cluster(nodes, {
    // Without a timeout, a client stays with a frozen master for ever. A worker blocks for up to 10 seconds.
    redisOptions: { ...access, ...PATIENT, socketTimeout: 15_000 },
    maxRedirections: 64,
    retryDelayOnFailover: 500,
    retryDelayOnClusterDown: 500,
  });
}

// Return the option `connection` of a Queue or Worker. Only a client of a Cluster is open, and is for the caller to end.
export function connectionOf(url) {
  const parts = parse(url);
  if (parts.kind === "cluster") return cluster(parts);
  if (parts.kind === "sentinel") return sentinelOptions(parts);
  return { url: url.split("?")[0], ...(parts.access.tls && { tls: parts.access.tls }), ...PATIENT };
}

// Open a client of ioredis.
export function open(url) {
  const options = connectionOf(url);
  if (options instanceof Cluster) return options;
  return options.url ? new Redis(options.url, options) : new Redis(options);
}
