// Runs stock BullMQ 6 for the benchmarks. Each line of the input is a command (JSON), each line of the output its
// duration in seconds.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { connectionOf } from "../testbed/workers/connections.mjs";

const require = createRequire(new URL("../testbed/workers/", import.meta.url));
const { FlowProducer, Queue, UnrecoverableError, Worker } = require("bullmq6");
const [url, prefix] = process.argv.slice(2);
const options = { connection: connectionOf(url), prefix };
const seconds = async (run) => {
  const start = process.hrtime.bigint();
  await run();
  return Number(process.hrtime.bigint() - start) / 1e9;
};

// Send this many jobs or flows in batches, `lanes` batches at a time.
async function inBatches(total, size, lanes, send) {
  let left = total;
  const lane = async () => {
    while (left > 0) {
      const count = Math.min(size, left);
      left -= count;
      await send(count);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}

const orders = {
  // Create flows: a parent and its children, one job in each queue.
  async flows({ count, queues, data, size, lanes }) {
    const producer = new FlowProducer(options);
    await producer.waitUntilReady();
    const node = (queueName) => ({ name: "works", queueName, data });
    const flow = () => ({ ...node(queues[0]), children: queues.slice(1).map(node) });
    const took = await seconds(() =>
      inBatches(count, size, lanes, (n) => producer.addBulk(Array.from({ length: n }, flow))),
    );
    await producer.close();
    return took;
  },
  async jobs({ count, queues, data }) {
    const took = await seconds(async () => {
      for (const name of queues) {
        const queue = new Queue(name, options);
        const job = () => ({ name: "works", data });
        await inBatches(count, 500, 1, (n) => queue.addBulk(Array.from({ length: n }, job)));
        await queue.close();
      }
    });
    return took;
  },
  // Run workers until this many jobs have ended. A job with the name "fails" fails.
  async work({ count, queues, concurrency }) {
    let left = count;
    let ended;
    const all = new Promise((resolve) => (ended = resolve));
    const note = () => --left === 0 && ended();
    const workers = queues.map((name) => {
      const worker = new Worker(
        name,
        async (job) => {
          if (job.name === "fails") throw new UnrecoverableError("fails on purpose");
        },
        { ...options, concurrency },
      );
      return worker.on("completed", note).on("failed", note);
    });
    const took = await seconds(() => all);
    await Promise.all(workers.map((worker) => worker.close()));
    return took;
  },
};

const lines = createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const { order, ...fields } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(await orders[order](fields))}\n`);
});
lines.on("close", () => process.exit(0));
