// The API of bull-board without its HTTP server: the handler of a route answers a request.
import { createRequire } from "node:module";

// Its adapter requires "bullmq"; NODE_PATH names the folder in which that is one of the versions.
const { createBullBoard, BullMQAdapter } = (() => {
  const require = createRequire(import.meta.url);
  return { ...require("@bull-board/api"), ...require("@bull-board/api/bullMQAdapter") };
})();

// Answer one request to a board with these queues: its route and method, params, query and body.
export async function ask(queues, settings, { method, route, ...request }) {
  const found = {};
  const server = new Proxy({}, { get: (_, name) => (value) => ((found[name] = value), server) });
  createBullBoard({ queues: queues.map((queue) => new BullMQAdapter(queue, settings)), serverAdapter: server });
  const { handler } = found.setApiRoutes.find((each) => each.route === route && each.method === method);
  const context = { queues: found.setQueues, uiConfig: {}, params: {}, query: {}, body: {}, headers: {} };
  try {
    return { status: 200, ...(await handler({ ...context, ...request })) };
  } catch (error) {
    return found.setErrorHandler(error);
  }
}
