// The figures of the page *Now*: what the counters of this gateway gained in the last minute, and the states of the upstreams. One sampler
// serves all viewers, and rests while nobody looks.
import { ERRORS, GatewayError } from '../errors.ts';

const SAMPLE_MS = 5000;
/** States change less often than counters, and matter more. */
const STATES_MS = 1000;
const WINDOW_MS = 60_000;
const MAX_VIEWERS = 100;

/** Sums over all series of a counter, or of a gauge. */
interface Sample {
  readonly at: number;
  readonly sums: Readonly<Record<string, number>>;
}

/** Texts by the ids of their elements. */
export type Figures = Readonly<Record<string, string>>;

interface FiguresOptions {
  /** The text that `/metrics` answers. */
  readonly metrics: () => Promise<string>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly currency: () => string | undefined;
  /** Texts of the states of the upstreams. */
  readonly states: () => Promise<Figures>;
}

export class LiveFigures {
  readonly #options: FiguresOptions;
  readonly #viewers = new Set<(frame: Buffer) => void>();
  #samples: readonly Sample[] = [];
  #timer: NodeJS.Timeout | undefined;
  #isAsking = false;
  #last = '';

  constructor(options: FiguresOptions) {
    this.#options = options;
  }

  /** The figures now; at most one sample each five seconds is taken. */
  async current(): Promise<Figures> {
    const { metrics, now } = this.#options;
    const last = this.#samples.at(-1);
    if (last === undefined || now() - last.at >= SAMPLE_MS - 100) {
      const sample = { at: now(), sums: sumsOf(await metrics()) };
      const kept = this.#samples.filter(({ at }) => sample.at - at <= WINDOW_MS);
      this.#samples = [...kept, sample];
    }
    return { ...figuresOf(this.#samples, this.#options.currency()), ...(await this.#options.states()) };
  }

  /**
   * Calls `send` with a server-sent event (HTML, 9.2) at every sample, and within a second when a state changes.
   * @returns ends it
   * @throws GatewayError `overloaded` when too many look
   */
  watch(send: (frame: Buffer) => void): () => void {
    if (this.#viewers.size >= MAX_VIEWERS) throw new GatewayError('overloaded');
    this.#viewers.add(send);
    this.#timer ??= setInterval(() => void this.#tell(), STATES_MS).unref();
    return () => {
      this.#viewers.delete(send);
      if (this.#viewers.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }

  /** The event is made once for all viewers. */
  async #tell(): Promise<void> {
    if (this.#isAsking) return;
    this.#isAsking = true;
    try {
      const text = JSON.stringify(await this.current());
      if (text === this.#last) return;
      this.#last = text;
      const frame = Buffer.from(`data: ${text}\n\n`);
      for (const viewer of this.#viewers) viewer(frame);
    } catch {
      // The next time tries again.
    } finally {
      this.#isAsking = false;
    }
  }
}

const SERIES = /^(\w+)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Sums of the series that the page shows. @param text in Prometheus' format */
export function sumsOf(text: string): Sample['sums'] {
  const sums: Record<string, number> = {};
  for (const line of text.split('\n')) {
    if (!/^(?:tollgate_(?:request|cost|realtime)|gen_ai_)/.test(line)) continue;
    const [, name = '', labels = '', value = ''] = SERIES.exec(line) ?? [];
    const key = keyOf(
      name,
      Object.fromEntries([...labels.matchAll(LABEL)].map(([, label, of]) => [label, of])),
    );
    if (key !== undefined) sums[key] = (sums[key] ?? 0) + Number(value);
  }
  return sums;
}

const SUMMED: readonly string[] = [
  'tollgate_requests_in_flight',
  'tollgate_realtime_sessions',
  'tollgate_cost_total',
  'gen_ai_client_token_usage_sum',
  'gen_ai_server_time_to_first_token_seconds_sum',
  'gen_ai_server_time_to_first_token_seconds_count',
];

function keyOf(name: string, labels: Readonly<Record<string, string | undefined>>): string | undefined {
  if (SUMMED.includes(name)) return name;
  const { route, outcome = '', upstream = 'none' } = labels;
  if (name !== 'tollgate_request_outcomes_total' || route?.startsWith('/v1') !== true) return undefined;
  return outcome === 'ok' ? 'ok' : faultOf(outcome, upstream);
}

const STATUSES: ReadonlyMap<string, number> = new Map(
  Object.entries(ERRORS).map(([code, { status }]) => [code, status]),
);

/** Whose fault an error is: of the client, of an upstream, or of the gateway. */
function faultOf(code: string, upstream: string): 'client' | 'upstream' | 'gateway' {
  const status = STATUSES.get(code);
  if (code.startsWith('upstream_') || code.startsWith('stream_')) return 'upstream';
  if (status !== undefined && status < 500 && status !== 406) return 'client';
  return upstream === 'none' ? 'gateway' : 'upstream';
}

function figuresOf(samples: readonly Sample[], currency: string | undefined): Figures {
  const [first, last] = [samples.at(0), samples.at(-1)];
  if (first === undefined || last === undefined) return {};
  const minutes = Math.max(last.at - first.at, 1) / 60_000;
  // Counters begin anew when the process does.
  const gain = (name: string) => Math.max((last.sums[name] ?? 0) - (first.sums[name] ?? 0), 0);
  const rate = (name: string) => (samples.length < 2 ? undefined : gain(name) / minutes);
  const firsts = gain('gen_ai_server_time_to_first_token_seconds_count');
  const seconds = firsts === 0 ? undefined : gain('gen_ai_server_time_to_first_token_seconds_sum') / firsts;
  const cost = rate('tollgate_cost_total');
  const kinds = ['ok', 'client', 'upstream', 'gateway'];
  const requests =
    samples.length < 2 ? undefined : kinds.reduce((sum, kind) => sum + gain(kind), 0) / minutes;
  return {
    requests: text(requests),
    client: text(rate('client')),
    upstream: text(rate('upstream')),
    gateway: text(rate('gateway')),
    first: seconds === undefined ? '–' : `${Math.round(seconds * 1000)} ms`,
    tokens: text(rate('gen_ai_client_token_usage_sum')),
    cost: cost === undefined || currency === undefined ? '–' : `${cost.toFixed(4)} ${currency}`,
    flight: text(last.sums['tollgate_requests_in_flight']),
    sessions: text(last.sums['tollgate_realtime_sessions']),
    at: `${new Date(last.at).toISOString().slice(11, 19)} UTC`,
  };
}

function text(value: number | undefined): string {
  return value === undefined ? '–' : Math.round(value).toLocaleString('en-US');
}
