"""CRDs and generated documentation. Pure except for the two commands.

custom_resource  the parts that all CRDs share
jobgroup         the CRD of JobGroups
workerpool       the CRD of WorkerPools
rules            CEL rules of JobGroups
structural       pydantic models -> structural schemas
generate         the command that writes deploy/crds/
reference        the command that writes docs/reference.md and the saga table in docs/design.md
"""
