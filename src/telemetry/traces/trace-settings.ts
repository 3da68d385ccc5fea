// Reads the OTEL_* environment variables of OpenTelemetry's specification. An invalid value is a warning and does not prevent the start.
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import type { TlsConfig } from '../../config/schema/outbound-schema.ts';

export interface TraceSettings {
  /** OTLP over HTTP endpoint, with its path. */
  readonly url: string;
  /** Headers for the collector; they may contain its credential. */
  readonly headers: Readonly<Record<string, string>>;
  /** Certificates for the connections to the collector. */
  readonly tls?: TlsConfig;
  /** Milliseconds for one export with its retries. */
  readonly timeoutMs: number;
  readonly sampler: SamplerSettings;
  readonly batch: BatchSettings;
  /** Resource attributes, including `service.name`. */
  readonly attributes: Readonly<Record<string, string>>;
}

export interface SamplerSettings {
  readonly root: 'always_on' | 'always_off' | 'traceidratio';
  /** From 0 to 1, for `traceidratio`. */
  readonly ratio: number;
  /** Whether the sampling decision of the client's span takes precedence. */
  readonly isParentBased: boolean;
}

interface BatchSettings {
  readonly delayMs: number;
  /** Maximum queued spans; further ones are dropped. */
  readonly maxQueue: number;
  readonly maxBatch: number;
}

interface TraceSettingsRead {
  /** Undefined when tracing is off. */
  readonly settings: TraceSettings | undefined;
  /** They quote no values, which may be credentials. */
  readonly warnings: readonly string[];
}

type Env = Readonly<Record<string, string | undefined>>;

/** Less than the 10 s of the specification, because shutdown waits for a running export. */
const TIMEOUT_MS = 5_000;

export function readTraceSettings(env: Env): TraceSettingsRead {
  const reader = new Reader(env);
  const { warnings } = reader;
  const endpoint = reader.endpoint();
  if (endpoint === undefined || reader.isDisabled()) return { settings: undefined, warnings };
  reader.checkProtocol();
  const tls = reader.tls();
  const settings: TraceSettings = {
    url: endpoint,
    ...(tls === undefined ? {} : { tls }),
    headers: {
      ...reader.pairs('OTEL_EXPORTER_OTLP_HEADERS'),
      ...reader.pairs('OTEL_EXPORTER_OTLP_TRACES_HEADERS'),
    },
    timeoutMs: reader.whole(
      'OTEL_EXPORTER_OTLP_TRACES_TIMEOUT',
      reader.whole('OTEL_EXPORTER_OTLP_TIMEOUT', TIMEOUT_MS),
    ),
    sampler: reader.sampler(),
    batch: {
      delayMs: reader.whole('OTEL_BSP_SCHEDULE_DELAY', 5_000),
      maxQueue: reader.whole('OTEL_BSP_MAX_QUEUE_SIZE', 2_048),
      maxBatch: reader.whole('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 512),
    },
    attributes: reader.attributes(),
  };
  return { settings, warnings };
}

class Reader {
  readonly warnings: string[] = [];
  readonly #env: Env;

  constructor(env: Env) {
    this.#env = env;
  }

  endpoint(): string | undefined {
    const own = this.#text('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT');
    const base = this.#text('OTEL_EXPORTER_OTLP_ENDPOINT');
    if (own === undefined && base === undefined) return undefined;
    // The signal's path is appended to the general endpoint; the specific one is used unchanged.
    const url = URL.parse(own ?? `${base?.replace(/\/+$/, '')}/v1/traces`);
    if (url !== null && /^https?:$/.test(url.protocol)) return url.href;
    const name = own === undefined ? 'OTEL_EXPORTER_OTLP_ENDPOINT' : 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT';
    this.warnings.push(`${name} is not an http or https URL; tracing is off`);
    return undefined;
  }

  isDisabled(): boolean {
    if (this.#text('OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return true;
    const exporter = this.#text('OTEL_TRACES_EXPORTER');
    if (exporter === undefined || exporter === 'otlp') return false;
    if (exporter !== 'none') this.warnings.push('OTEL_TRACES_EXPORTER must be otlp or none; tracing is off');
    return true;
  }

  checkProtocol(): void {
    const protocol =
      this.#text('OTEL_EXPORTER_OTLP_TRACES_PROTOCOL') ?? this.#text('OTEL_EXPORTER_OTLP_PROTOCOL');
    if (protocol !== undefined && protocol !== 'http/protobuf')
      this.warnings.push('OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf; using http/protobuf');
  }

  sampler(): SamplerSettings {
    const name = this.#text('OTEL_TRACES_SAMPLER') ?? 'parentbased_always_on';
    const isParentBased = name.startsWith('parentbased_');
    const root = isParentBased ? name.slice('parentbased_'.length) : name;
    if (root === 'always_on' || root === 'always_off') return { root, ratio: 1, isParentBased };
    if (root !== 'traceidratio') {
      this.warnings.push('OTEL_TRACES_SAMPLER is unknown; using parentbased_always_on');
      return { root: 'always_on', ratio: 1, isParentBased: true };
    }
    const text = this.#text('OTEL_TRACES_SAMPLER_ARG') ?? '1';
    const ratio = Number(text);
    if (ratio >= 0 && ratio <= 1) return { root, ratio, isParentBased };
    this.warnings.push('OTEL_TRACES_SAMPLER_ARG is not a number from 0 to 1; using 1');
    return { root, ratio: 1, isParentBased };
  }

  attributes(): Record<string, string> {
    const given = this.pairs('OTEL_RESOURCE_ATTRIBUTES');
    const name = this.#text('OTEL_SERVICE_NAME') ?? given['service.name'] ?? 'tollgate';
    return { ...given, 'service.name': name };
  }

  whole(name: string, fallback: number): number {
    const text = this.#text(name);
    if (text === undefined) return fallback;
    const value = Number(text);
    // Timers overflow at 2^31 ms.
    if (Number.isInteger(value) && value > 0 && value < 2 ** 31) return value;
    this.warnings.push(`${name} is not a positive whole number; using ${fallback}`);
    return fallback;
  }

  /** Reads the files of OTEL_EXPORTER_OTLP_CERTIFICATE and its companions. */
  tls(): TlsConfig | undefined {
    const found: Record<string, string> = {};
    const names = { ca: 'CERTIFICATE', cert: 'CLIENT_CERTIFICATE', key: 'CLIENT_KEY' };
    try {
      for (const [field, name] of Object.entries(names)) {
        const file =
          this.#text(`OTEL_EXPORTER_OTLP_TRACES_${name}`) ?? this.#text(`OTEL_EXPORTER_OTLP_${name}`);
        if (file !== undefined) found[field] = readFileSync(file, 'utf8');
      }
      createSecureContext(found);
      return Object.keys(found).length === 0 ? undefined : found;
    } catch {
      this.warnings.push(
        'a file of OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE or _CLIENT_KEY cannot be used; ignoring all three',
      );
      return undefined;
    }
  }

  /** Reads `a=1,b=2`, percent-encoded. By the specification, one fault discards the whole value. */
  pairs(name: string): Record<string, string> {
    const text = this.#text(name);
    if (text === undefined) return {};
    const pairs: [string, string][] = [];
    for (const part of text.split(',').filter((each) => each.trim() !== '')) {
      const at = part.indexOf('=');
      const pair = at < 1 ? undefined : [decoded(part.slice(0, at)), decoded(part.slice(at + 1))];
      const [key, value] = pair ?? [];
      if (key === undefined || key === '' || value === undefined) {
        this.warnings.push(`${name} is not of the form a=1,b=2; ignoring it`);
        return {};
      }
      pairs.push([key, value]);
    }
    return Object.fromEntries(pairs);
  }

  #text(name: string): string | undefined {
    const text = this.#env[name]?.trim();
    return text === '' ? undefined : text;
  }
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text.trim());
  } catch {
    return undefined;
  }
}
