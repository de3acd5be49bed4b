// A stock BullMQ worker for the end-to-end tests. The data of a job, or of the compensation for an undo, controls what
// it does: {after, seconds, fails, returns}. `after` lists the jobs that must end first. The worker appends the begin
// and the end of each job to a list in Redis.
import { setTimeout as sleep } from "node:timers/promises";
import { UnrecoverableError, Worker } from "bullmq";
import { open } from "./connections.mjs";

const connection = open(process.env.REDIS_URL);

const run = async (job) => {
  const { after = [], seconds = 0, fails, returns } = job.data.compensationData ?? job.data;
  const note = (what) => connection.rpush(process.env.TRAIL, `${what} ${job.name}`);
  await note("began");
  const ended = async () => {
    const trail = await connection.lrange(process.env.TRAIL, 0, -1);
    return after.every((name) => trail.includes(`ended ${name}`));
  };
  while (!(await ended())) await sleep(100);
  await sleep(seconds * 1000);
  if (fails) throw new UnrecoverableError(fails);
  await note("ended");
  return returns;
};

const workers = process.env.QUEUES.split(",").map((queue) => {
  const [name, ...halves] = queue.split(":").reverse();
  const worker = new Worker(name, run, { connection, prefix: ["bull", ...halves].join(":") });
  worker.on("error", ({ message }) => console.error(message));
  return worker;
});

process.once("SIGTERM", async () => {
  await Promise.all(workers.map((worker) => worker.close()));
  process.exit(0);
});
