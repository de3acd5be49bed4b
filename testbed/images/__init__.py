"""Container images.

builders    docker, or buildah
base        images that others build on: pulled, or made from Debian's packages
project     the images of this project
make_image  what `make image` runs
"""
