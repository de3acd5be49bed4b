FROM node:24-slim
WORKDIR /app
COPY package.json .
RUN npm install --omit=dev
COPY worker.mjs .
# Node itself, not npm or a shell: SIGTERM must reach the worker.
CMD ["node", "worker.mjs"]
