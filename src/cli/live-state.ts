// How targets are doing by a gateway that runs beside the command: its admin listener is asked, and believed only where it
// answers in time and in the right form. It sends nothing to upstreams.
import { Pool } from 'undici';
import { z } from 'zod';
import { httpUrl } from '../config/schema/addresses.ts';
import type { StaticConfig } from '../config/schema/config-schema.ts';
import type { TargetState } from '../http/admin/admin-listener.ts';

/** Far above the state of any number of targets that a gateway remembers. */
const MAX_ANSWER = 2 ** 23;

/** What a gateway said of itself. */
export interface LiveState {
  /** Of its admin listener; null where the configuration leaves the port to chance. */
  readonly url: string | null;
  /** Undefined where nothing that is a gateway said it. */
  readonly configHash: string | undefined;
  readonly states: readonly TargetState[] | undefined;
}

/** How one target is doing. */
interface TargetLive {
  readonly state: TargetState['state'];
  readonly in_flight: number;
  /** For how many milliseconds it is left alone; 0 when it may be asked now. */
  readonly until_ms: number;
}

const READINESS = z.object({ config_hash: z.string().regex(/^[0-9a-f]{12}$/) });
const STATES = z.array(
  z.object({
    upstream: z.string(),
    model: z.string(),
    state: z.enum(['closed', 'open', 'half_open']),
    in_flight: z.int().nonnegative(),
    until_ms: z.number().nonnegative().exactOptional(),
  }),
) satisfies z.ZodType<readonly TargetState[]>;

/**
 * Asks the admin listener of the configuration. Whoever does not answer in time, or is somebody else, is no gateway.
 * @param patienceMs for both of its answers together, in milliseconds
 * @throws nothing: what is not said is undefined
 */
export async function fetchLiveState(
  { admin }: Pick<StaticConfig, 'admin'>,
  patienceMs: number,
): Promise<LiveState> {
  if (admin.port === 0) return { url: null, configHash: undefined, states: undefined };
  // Every address is one to listen on, and none to connect to.
  const host = { '0.0.0.0': '127.0.0.1', '::': '::1' }[admin.host] ?? admin.host;
  const url = httpUrl(host, admin.port);
  const pool = new Pool(url, { connections: 2, maxResponseSize: MAX_ANSWER });
  const signal = AbortSignal.timeout(patienceMs);
  const ask = async <T>(path: string, schema: z.ZodType<T>): Promise<T | undefined> => {
    try {
      const { body } = await pool.request({ method: 'GET', path, signal });
      return schema.safeParse(await body.json()).data;
    } catch {
      return undefined;
    }
  };
  try {
    const [readiness, states] = await Promise.all([ask('/readyz', READINESS), ask('/upstreams', STATES)]);
    return { url, configHash: readiness?.config_hash, states };
  } finally {
    await pool.destroy();
  }
}

/** Null where no gateway told it: it was not asked, or not reached, or did not ask this target yet. */
export function liveOf({ states }: LiveState, upstream: string, model: string): TargetLive | null {
  const found = states?.find((each) => each.upstream === upstream && each.model === model);
  if (found === undefined) return null;
  const { state, in_flight, until_ms = 0 } = found;
  return { state, in_flight, until_ms };
}

/** In words: `breaker open, 0 in flight, left alone for another 9s`. */
export function liveText(live: TargetLive | null): string {
  if (live === null) return 'not asked yet';
  const alone = live.until_ms > 0 ? `, left alone for another ${Math.ceil(live.until_ms / 1000)}s` : '';
  return `breaker ${live.state.replace('_', ' ')}, ${live.in_flight} in flight${alone}`;
}

/**
 * Who answered, in words.
 * @param hash of the configuration that the command read
 */
export function gatewayText({ url, configHash, states }: LiveState, hash: string): string {
  if (url === null) return 'not asked for its state: admin.port is 0, so its port is not known';
  if (configHash === undefined && states === undefined) return `none answers at ${url}: no state to show`;
  const which =
    configHash === undefined
      ? 'did not say in time which configuration it runs'
      : configHash === hash
        ? 'runs this configuration'
        : `runs another configuration or environment (${configHash}, this is ${hash})`;
  return `${url} ${which}${states === undefined ? ', and tells no state of upstreams' : ''}`;
}
