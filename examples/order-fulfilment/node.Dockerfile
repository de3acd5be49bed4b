# The workers in Node. npm downloads the packages of package-lock.json; with
# --build-arg NPM_CONFIG_OFFLINE=true it takes them from npm-cache/.
ARG BASE=node:24-slim

FROM ${BASE} AS dependencies
ARG NPM_CONFIG_OFFLINE
ARG NPM_CONFIG_REGISTRY
WORKDIR /app
COPY package.json package-lock.json npm-cache* ./
RUN npm ci --omit=dev --ignore-scripts --cache .

FROM ${BASE}
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY package.json worker.mjs ./
USER 65532:65532
# Node itself, not npm or a shell: SIGTERM must reach the worker.
CMD ["node", "worker.mjs"]
