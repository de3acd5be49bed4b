// Stock BullMQ clients that tests control: one JSON object a line, in and out.
// Usage: node client.mjs bullmq5|bullmq6 SOCKET. Each connection to the socket is a client of its own.
// Orders and reports: see ../servers/stock.py.
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { connectionOf } from "./connections.mjs";

const [, , flavour, path] = process.argv;
const { FlowProducer, Queue, QueueEvents, UnrecoverableError, WaitingChildrenError, WaitingError, Worker } =
  await import(flavour);

function withResolvers() {
  const made = {};
  made.promise = new Promise((resolve) => (made.resolve = resolve));
  return made;
}

function serve(socket) {
  const report = (event, fields = {}) => socket.writable && socket.write(`${JSON.stringify({ event, ...fields })}\n`);
  const workers = [];
  const listeners = [];
  const behaviours = {};
  const gates = {};
  const backs = new Set();
  let options;

  function gate(name) {
    gates[name] ??= Promise.withResolvers?.() ?? withResolvers();
    return gates[name];
  }

  // BullMQ for Node rejects a colon in the name of a queue: the part before the last one joins the prefix.
  function place(queue) {
    const [, head, name] = /^(?:(.*):)?(.*)$/.exec(queue);
    return [name, head ? { ...options, prefix: `${options.prefix}:${head}` } : options];
  }

  async function run(job, token) {
    const behaviour = behaviours[job.name] ?? {};
    const { id, name, data, opts } = job;
    report("started", { id, name, data, opts, attempt: job.attemptsMade });
    if (behaviour.hang) await gate(name).promise;
    if (behaviour.takes) await new Promise((resolve) => setTimeout(resolve, behaviour.takes));
    if (behaviour.goes_back && !backs.has(id)) {
      backs.add(id);
      await job.moveToWait(token);
      report("back", { id, name });
      throw new WaitingError();
    }
    if (behaviour.child) {
      const producer = new Queue(...place(behaviour.child));
      await producer.add("child", {}, { parent: { id, queue: job.queueQualifiedName } });
      await producer.close();
      await job.moveToWaitingChildren(token);
      report("waits", { id, name });
      throw new WaitingChildrenError();
    }
    if (behaviour.unrecoverable) throw new UnrecoverableError(behaviour.reason);
    if (job.attemptsMade < (behaviour.fail ?? 0)) throw new Error(behaviour.reason);
    return behaviour.return ?? null;
  }

  const orders = {
    connect({ url, prefix }) {
      options = { connection: connectionOf(url), prefix };
    },
    async work({ queue, behaviour, settings }) {
      Object.assign(behaviours, behaviour);
      const [name, at] = place(queue);
      const worker = new Worker(name, run, { ...at, ...settings });
      worker.on("completed", ({ id, name }) => report("completed", { id, name }));
      worker.on("failed", (job, error) => report("failed", { id: job?.id, name: job?.name, reason: error.message }));
      worker.on("stalled", (id) => report("stalled", { id }));
      worker.on("error", (error) => report("error", { reason: error.message }));
      workers.push(worker);
      await worker.waitUntilReady();
      report("working", { queue });
    },
    async add({ queue, name, data, opts }) {
      const producer = new Queue(...place(queue));
      const job = await producer.add(name, data, opts);
      await producer.close();
      report("added", { id: job.id, name });
    },
    async manage({ queue, job, method, args }) {
      const manager = new Queue(...place(queue));
      try {
        const target = job ? await manager.getJob(job) : manager;
        const result = (await target[method](...args)) ?? null;
        report("managed", { method, result });
      } finally {
        await manager.close();
      }
    },
    async await_end({ queue, job }) {
      const [name, at] = place(queue);
      const manager = new Queue(name, at);
      const listener = new QueueEvents(name, at);
      listeners.push(manager, listener);
      await listener.waitUntilReady();
      const found = await manager.getJob(job);
      found.waitUntilFinished(listener).then(
        (value) => report("awaited", { id: job, value }),
        (error) => report("awaited", { id: job, reason: error.message }),
      );
      report("awaiting", { id: job });
    },
    async tree({ queue, id }) {
      const [queueName, at] = place(queue);
      const producer = new FlowProducer(at);
      const tree = await producer.getFlow({ queueName, id });
      await producer.close();
      report("tree", { id, tree });
    },
    async board({ queues, settings, request }) {
      const { ask } = await import("./board.mjs");
      const opened = queues.map((queue) => new Queue(...place(queue)));
      // 5.x throws an error outside of any call if a Queue is closed before it is ready.
      await Promise.all(opened.map((queue) => queue.waitUntilReady()));
      try {
        report("answered", await ask(opened, settings, request));
      } finally {
        await Promise.all(opened.map((queue) => queue.close()));
      }
    },
    async listen({ queue, types }) {
      const [name, at] = place(queue);
      const listener = new QueueEvents(name, { ...at, lastEventId: "0" });
      for (const type of types) listener.on(type, (fields, id) => report("event", { queue, type, id, fields }));
      listeners.push(listener);
      listener.on("error", (error) => report("error", { reason: error.message }));
      await listener.waitUntilReady();
      report("listening", { queue });
    },
    release: ({ name }) => gate(name).resolve(),
    async close() {
      await Promise.all(workers.map((worker) => worker.close()));
      options.connection.disconnect?.();
      report("closed");
      socket.end();
    },
  };

  const lines = createInterface({ input: socket });
  lines.on("line", async (line) => {
    const { order, ...fields } = JSON.parse(line);
    try {
      await orders[order](fields);
    } catch (error) {
      report("refused", { order, reason: error.message });
    }
  });
  // The test has ended the client: abandon its jobs, as a crash does.
  lines.on("close", async () => {
    await Promise.allSettled([...workers.map((worker) => worker.close(true)), ...listeners.map((each) => each.close())]);
    options?.connection.disconnect?.();
    socket.end();
  });
  socket.on("error", () => socket.destroy());
}

createServer({ allowHalfOpen: true }, serve).listen(path);
// The process that started this one has ended.
process.stdin.on("end", () => process.exit(0)).resume();
