// A stock BullMQ worker that posts the end of a saga as a CloudEvent: structured mode, over HTTP.
//
// If the receiver does not accept an event, the job fails, and BullMQ retries it as often as its `attempts` allow. So a
// receiver may get an event twice, with the same source and id.
import { Worker } from "bullmq";
import { Redis } from "ioredis";

const prefix = process.env.BULLMQ_PREFIX ?? "bull";
const sink = process.env.SINK ?? "http://127.0.0.1:8080/";
const source = process.env.SOURCE ?? "/sagas";
const connection = new Redis(process.env.REDIS_URL ?? "redis://127.0.0.1:6379/0", { maxRetriesPerRequest: null });

const post = async ({ id, data, timestamp }) => {
  const event = {
    specversion: "1.0",
    id,
    source,
    type: `dev.jobgroups.saga.${data.state.toLowerCase()}`,
    subject: data.groupName,
    time: new Date(timestamp).toISOString(),
    datacontenttype: "application/json",
    data,
  };
  const response = await fetch(sink, {
    method: "POST",
    headers: { "content-type": "application/cloudevents+json; charset=utf-8" },
    body: JSON.stringify(event),
    signal: AbortSignal.timeout(10_000),
  });
  if (!response.ok) throw new Error(`${sink} answered ${response.status}`);
};

const worker = new Worker(process.env.QUEUE ?? "saga-ends", post, { connection, prefix });
worker.on("failed", (job, { message }) => console.log(`${job?.id} was not posted: ${message}`));
worker.on("error", (error) => console.error(error.message));

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    await worker.close();
    process.exit(0);
  });
}

await worker.waitUntilReady();
console.log("working");
