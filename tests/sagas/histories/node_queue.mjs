// A stock BullMQ for Node that performs single steps: one JSON object a line in, one JSON object a line out.
// Usage: node node_queue.mjs bullmq5|bullmq6 REDIS_URL PREFIX WORKER_OPTIONS. Requests: see node_queue.py.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [, , flavour, url, prefix, workerOptions] = process.argv;
const require = createRequire(new URL("../../../testbed/workers/", import.meta.url));
const { Queue, UnrecoverableError, Worker, removeAllQueueData } = require(flavour);
const { open } = await import(new URL("../../../testbed/workers/connections.mjs", import.meta.url));

const connection = open(url);
const workers = new Map();
const held = new Map();
const troubles = [];

// BullMQ for Node rejects a colon in the name of a queue: the part before the last one joins the prefix.
function place(queue) {
  const [, head, name] = /^(?:(.*):)?(.*)$/.exec(queue);
  return [name, head ? `${prefix}:${head}` : prefix];
}

function workerOf(queue) {
  if (!workers.has(queue)) {
    const [name, prefix] = place(queue);
    const worker = new Worker(name, null, { connection, prefix, autorun: false, ...JSON.parse(workerOptions) });
    worker.on("error", (error) => troubles.push(error));
    workers.set(queue, worker);
  }
  return workers.get(queue);
}

const steps = {
  async take({ queue, token }) {
    const job = await workerOf(queue).getNextJob(token, { block: false });
    if (!job) return null;
    held.set(token, job);
    return { id: job.id, deferredFailure: job.deferredFailure ?? null };
  },
  async complete({ token, value }) {
    await held.get(token).moveToCompleted(value, token, false);
  },
  async fail({ token, reason, final }) {
    const error = final ? new UnrecoverableError(reason) : new Error(reason);
    await held.get(token).moveToFailed(error, token, false);
  },
  async check_stalls({ queue }) {
    await workerOf(queue).moveStalledJobsToWait();
  },
  // Call a method of a new Queue, or of one of its jobs. A new Queue writes its version into `meta`.
  async manage({ queue, job, method, args }) {
    const [name, prefix] = place(queue);
    const manager = new Queue(name, { connection, prefix });
    manager.on("error", (error) => troubles.push(error));
    await manager.waitUntilReady();
    const target = job ? await manager.getJob(job) : manager;
    const result = await target[method](...args);
    await manager.close();
    return ["number", "boolean"].includes(typeof result) ? result : null;
  },
  async delete_keys({ queue }) {
    // It closes the connection.
    await removeAllQueueData(connection.duplicate(), ...place(queue));
  },
};

async function answer({ step, ...fields }) {
  try {
    const result = (await steps[step](fields)) ?? null;
    if (troubles.length) throw troubles.pop();
    return { result };
  } catch (error) {
    return { error: error.stack };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
}
// The process that started this one has ended, or the test has.
process.exit(0);
