// Fetches the target states of a running gateway from its admin listener. Late or malformed answers count as no gateway. It sends
// nothing to upstreams.
import { Pool } from 'undici';
import { z } from 'zod';
import { httpUrl } from '../config/schema/addresses.ts';
import type { StaticConfig } from '../config/schema/config-schema.ts';
import type { TargetState } from '../http/admin/admin-listener.ts';

/** In bytes. Far above the largest possible list of target states. */
const MAX_RESPONSE = 2 ** 23;

/** The state that a running gateway reports. */
export interface LiveState {
  /** URL of its admin listener; null when `admin.port` is 0. */
  readonly url: string | null;
  /** Undefined when no gateway reported it. */
  readonly configHash: string | undefined;
  readonly states: readonly TargetState[] | undefined;
}

/** The live state of one target. */
interface TargetLive {
  readonly state: TargetState['state'];
  readonly in_flight: number;
  /** Remaining cool-down in milliseconds; 0 when it accepts requests. */
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
 * Queries the admin listener of the configuration. It does not throw; what the gateway does not report is undefined.
 * @param timeoutMs deadline of both requests together, in milliseconds
 */
export async function fetchLiveState(
  { admin }: Pick<StaticConfig, 'admin'>,
  timeoutMs: number,
): Promise<LiveState> {
  if (admin.port === 0) return { url: null, configHash: undefined, states: undefined };
  // The unspecified addresses are for listening; connect to loopback instead.
  const host = { '0.0.0.0': '127.0.0.1', '::': '::1' }[admin.host] ?? admin.host;
  const url = httpUrl(host, admin.port);
  const pool = new Pool(url, { connections: 2, maxResponseSize: MAX_RESPONSE });
  const signal = AbortSignal.timeout(timeoutMs);
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

/** Null when no gateway reported the target, or it has had no request yet. */
export function liveOf({ states }: LiveState, upstream: string, model: string): TargetLive | null {
  const found = states?.find((each) => each.upstream === upstream && each.model === model);
  if (found === undefined) return null;
  const { state, in_flight, until_ms = 0 } = found;
  return { state, in_flight, until_ms };
}

/** For people: `breaker open, 0 in flight, cooling down for another 9s`. */
export function liveText(live: TargetLive | null): string {
  if (live === null) return 'no requests yet';
  const coolDown = live.until_ms > 0 ? `, cooling down for another ${Math.ceil(live.until_ms / 1000)}s` : '';
  return `breaker ${live.state.replace('_', ' ')}, ${live.in_flight} in flight${coolDown}`;
}

/**
 * The running gateway, for people.
 * @param hash hash of the configuration that the command read
 */
export function gatewayText({ url, configHash, states }: LiveState, hash: string): string {
  if (url === null) return 'no state to show: admin.port is 0, so its port is unknown';
  if (configHash === undefined && states === undefined)
    return `no state to show: no gateway answers at ${url}`;
  const which =
    configHash === undefined
      ? 'did not report its configuration in time'
      : configHash === hash
        ? 'runs this configuration'
        : `runs another configuration or environment (${configHash}, this is ${hash})`;
  return `${url} ${which}${states === undefined ? ', and reports no upstream states' : ''}`;
}
