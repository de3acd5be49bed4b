// Stock BullMQ workers for the jobs of order.yaml and for their undos.
//
// Jobs and undos may run more than once, as ever in BullMQ: a real one would hand the order's id to
// the payment provider as its idempotency key, and refund a payment only if it is not refunded yet.
import { Worker } from "bullmq";

const connection = { url: process.env.REDIS_URL ?? "redis://127.0.0.1:6379/0", maxRetriesPerRequest: null };
const prefix = process.env.BULLMQ_PREFIX ?? "bull";
const STOCK = { teapot: 10 };

const jobs = {
  payments: ({ orderId, amount }) => {
    console.log(`charged ${amount} for order ${orderId}`);
    return { paymentId: `pay-${orderId}` };
  },
  inventory: ({ orderId, sku, quantity }) => {
    if (quantity > (STOCK[sku] ?? 0)) throw new Error(`there are not ${quantity} of ${sku}`);
    console.log(`reserved ${quantity} of ${sku} for order ${orderId}`);
    return { reservationId: `res-${orderId}` };
  },
  notifications: ({ orderId, to }) => {
    console.log(`confirmed order ${orderId} to ${to}`);
    return { messageId: `msg-${orderId}` };
  },
};

// An undo is told what its job returned, and the data of its compensation.
const undos = {
  payments: ({ originalReturnValue }) => console.log(`refunded ${originalReturnValue.paymentId}`),
  inventory: ({ originalReturnValue }) => console.log(`released ${originalReturnValue.reservationId}`),
  notifications: ({ compensationData }) => console.log(`apologized to ${compensationData.to}`),
};

const work = (queue, run, options) => {
  const worker = new Worker(queue, async (job) => run(job.data), { connection, ...options });
  worker.on("failed", (job, error) => console.log(`${job?.name} failed: ${error.message}`));
  worker.on("error", (error) => console.error(error.message));
  return worker;
};

// Those named in QUEUES, or all: a Deployment that a WorkerPool scales works on one queue alone.
const wanted = process.env.QUEUES?.split(",");
const isWanted = (queue) => wanted?.includes(queue) ?? true;

const workers = [
  ...Object.keys(jobs)
    .filter(isWanted)
    .map((queue) => work(queue, jobs[queue], { prefix })),
  // The undos' queue is `<queue>:compensation`. Node refuses a colon in a queue's name, so the first
  // half goes into the prefix: the keys are the same.
  ...Object.keys(undos)
    .filter((queue) => isWanted(`${queue}:compensation`))
    .map((queue) => work("compensation", undos[queue], { prefix: `${prefix}:${queue}` })),
];

// Finish the jobs at hand, take no more.
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    await Promise.all(workers.map((worker) => worker.close()));
    process.exit(0);
  });
}

await Promise.all(workers.map((worker) => worker.waitUntilReady()));
console.log("working");
