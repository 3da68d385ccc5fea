// Keys that no replica has seen, all at once, when Redis is empty: how long it takes until each client has its answer, and whether one
// gives up. The clients are those of the official SDK, with its defaults.
import OpenAI from 'openai';
import type { Fleet } from '../test/helpers/fleet.ts';

export interface ColdKeys {
  readonly keys: number;
  readonly ms: number;
  readonly argon2_runs: number;
  /** CPU time of the gateways, which the clients' is not part of: on a quiet machine it takes that, over the processors. */
  readonly cpu_s: number;
  /** Keys that could not be checked in time, by the reason that the gateways count. */
  readonly unavailable: Readonly<Record<string, number>>;
  /** Requests beyond the first of each key: answered with an error, and asked again. */
  readonly retried: number;
  /** Errors that clients got, also those that they hid from their users by asking again, by status and code. */
  readonly answered: Readonly<Record<string, number>>;
  /** Clients that handed an error to their user. */
  readonly gave_up: number;
  /** Their errors, by status and code. */
  readonly codes: Readonly<Record<string, number>>;
}

const REASONS = ['store', 'late', 'queue', 'hashing', 'contradiction', 'changing', 'other'] as const;

/** @param keys texts of good keys that nobody has used; they are spread evenly over the replicas */
export async function askCold(fleet: Fleet, keys: readonly string[]): Promise<ColdKeys> {
  const runs = () => fleet.metric('tollgate_argon2_runs_total{purpose="verify"}');
  await fleet.redis.flush();
  const before = await runs();
  const reasons = () =>
    Promise.all(REASONS.map((reason) => fleet.metric(`tollgate_auth_unavailable_total{reason="${reason}"}`)));
  const reasonsBefore = await reasons();
  const cpu = () => fleet.metric('process_cpu_seconds_total');
  const cpuBefore = await cpu();
  let requests = 0;
  let gave_up = 0;
  const codes: Record<string, number> = {};
  const answered: Record<string, number> = {};
  const counting: typeof fetch = async (...asked) => {
    requests += 1;
    const response = await fetch(...asked);
    if (!response.ok) {
      const { code } = /"code":\s*"(?<code>\w+)"/.exec(await response.clone().text())?.groups ?? {};
      const error = `${response.status} ${code}`;
      answered[error] = (answered[error] ?? 0) + 1;
    }
    return response;
  };
  const began = performance.now();
  await Promise.all(
    keys.map(async (apiKey, index) => {
      const url = fleet.replicas[index % fleet.replicas.length]?.gateway.url;
      const baseURL = `${new URL(url ?? '').origin}/v1`;
      const client = new OpenAI({ apiKey, baseURL, fetch: counting });
      await client.models.list().catch((error: unknown) => {
        gave_up += 1;
        const code = error instanceof OpenAI.APIError ? `${error.status} ${error.code}` : `${error}`;
        codes[code] = (codes[code] ?? 0) + 1;
      });
    }),
  );
  const ms = Math.round(performance.now() - began);
  return {
    keys: keys.length,
    ms,
    argon2_runs: (await runs()) - before,
    cpu_s: Number(((await cpu()) - cpuBefore).toFixed(1)),
    unavailable: Object.fromEntries(
      (await reasons()).map((count, index) => [REASONS[index], count - (reasonsBefore[index] ?? 0)]),
    ),
    retried: requests - keys.length,
    answered,
    gave_up,
    codes,
  };
}
