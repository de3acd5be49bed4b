// Stock BullMQ workers for the jobs of an order and for their undos.
//
// BullMQ runs a job at least once, so any of these may run twice. Each effect has a name derived from
// the order, here that of an entry in the shop's books: an existing entry is not added again, and a
// removed one is not removed again. Payment providers call such a name an idempotency key.
import { UnrecoverableError, Worker } from "bullmq";
import { Redis } from "ioredis";

const prefix = process.env.BULLMQ_PREFIX ?? "bull";
const redis = new Redis(process.env.REDIS_URL ?? "redis://127.0.0.1:6379/0", { maxRetriesPerRequest: null });
const stock = { teapot: Number(process.env.TEAPOTS ?? 10) };
const cities = ["Berlin", "Lisbon", "Oslo"];

const enter = async (book, id, value, done) => {
  const isNew = await redis.hsetnx(`${prefix}-shop:${book}`, id, value);
  console.log(isNew ? done : `${id} is in the books already`);
};

const takeOut = async (book, id, done) => {
  const wasThere = await redis.hdel(`${prefix}-shop:${book}`, id);
  console.log(wasThere ? done : `${id} is in the books no more`);
};

const charge = async ({ orderId, amount }) => {
  const paymentId = `pay-${orderId}`;
  await enter("payments", paymentId, amount, `charged ${amount} for order ${orderId}`);
  return { paymentId };
};

const reserve = async ({ orderId, sku, quantity }) => {
  if (quantity > (stock[sku] ?? 0)) throw new Error(`there are not ${quantity} of ${sku}`);
  const reservationId = `res-${orderId}`;
  await enter("reservations", reservationId, quantity, `reserved ${quantity} of ${sku} for order ${orderId}`);
  return { reservationId };
};

const ship = async ({ orderId, city }) => {
  if (!cities.includes(city)) throw new Error(`no carrier goes to ${city}`);
  const parcelId = `box-${orderId}`;
  await enter("parcels", parcelId, city, `booked a parcel to ${city} for order ${orderId}`);
  return { parcelId };
};

// An undo gets the return value of its job, and the data of its compensation.
const refund = ({ originalReturnValue: { paymentId }, compensationData: { note } }) =>
  takeOut("payments", paymentId, `refunded ${paymentId}: ${note}`);

const release = ({ originalReturnValue: { reservationId } }) =>
  takeOut("reservations", reservationId, `released ${reservationId}`);

const cancelParcel = ({ originalReturnValue: { parcelId } }) =>
  takeOut("parcels", parcelId, `cancelled ${parcelId}`);

const queues = {
  payments: { "charge-payment": charge },
  refunds: { "refund-payment": refund },
  inventory: { "reserve-stock": reserve },
  releases: { "release-stock": release },
  shipping: { "book-shipping": ship },
  cancellations: { "cancel-shipping": cancelParcel },
};

// How long each job takes, for a demonstration.
const pause = () => new Promise((resolve) => setTimeout(resolve, Number(process.env.WORK_MS ?? 0)));

const work = (queue) => {
  const run = async (job) => {
    const known = queues[queue][job.name];
    // A retry would not help: fail for good, so that the completed jobs are undone.
    if (!known) throw new UnrecoverableError(`no worker of ${queue} knows how to ${job.name}`);
    await pause();
    return known(job.data);
  };
  const worker = new Worker(queue, run, { connection: redis, prefix });
  worker.on("failed", ({ name, attemptsMade, opts }, { message }) =>
    console.log(`${name} failed: ${message} (attempt ${attemptsMade} of ${opts.attempts || 1})`),
  );
  worker.on("error", (error) => console.error(error.message));
  return worker;
};

// The queues that QUEUES names, or all. A WorkerPool scales the workers of one queue.
const wanted = process.env.QUEUES?.split(",") ?? Object.keys(queues);
const strange = wanted.filter((queue) => !(queue in queues));
if (strange.length) {
  console.error(`QUEUES names ${strange}; there are ${Object.keys(queues)}`);
  process.exit(2);
}
const workers = wanted.map(work);

// Finish the active jobs, and take no more.
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    await Promise.all(workers.map((worker) => worker.close()));
    process.exit(0);
  });
}

await Promise.all(workers.map((worker) => worker.waitUntilReady()));
console.log("working");
