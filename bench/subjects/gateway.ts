// The gateway with everything on: keys, limits of every kind, prices and the ledger, metrics, its access log in a file.
import { mkdirSync, openSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stringify } from 'yaml';
import { VENDOR_KEY } from '../load/sdk-request.ts';
import { ALIAS, LARGE_ALIAS, UPSTREAM_MODEL } from '../load/traffic.ts';
import type { Processes } from '../processes.ts';
import { CHAT, type Subject } from './subject.ts';

export const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
/** What operators start: the build, where it is newer than the source. */
export const LAUNCHER = fileURLToPath(new URL('../../bin/tollgate.js', import.meta.url));
const INSIDE = new URL('../inside.ts', import.meta.url).href;

/** None is ever reached, so that every request does all of the work. */
const LIMITS = {
  requests_per_minute: 1_000_000_000,
  tokens_per_minute: 1_000_000_000_000,
  requests_per_day: 1_000_000_000,
  tokens_per_month: 1_000_000_000_000,
  concurrency: 1_000_000,
};

export interface GatewayOptions {
  readonly folder: string;
  /** Ports of the upstreams for small and for large bodies. */
  readonly upstream: number;
  readonly largeUpstream: number;
  /** How many files it may have open. */
  readonly files?: number;
  /** Laid over the configuration, section by section. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Can be profiled, and asked to collect garbage: a few lines of the bench run inside of it. */
  readonly inside?: boolean;
  /** Of Node. Default: none. */
  readonly flags?: readonly string[];
  /** The program. Default: `MAIN`, from the source. */
  readonly program?: string;
  /** Default: a new key. */
  readonly key?: string;
}

/** @returns path of the configuration */
export function writeConfig({ folder, upstream, largeUpstream, config }: GatewayOptions): string {
  mkdirSync(folder, { recursive: true });
  const vendor = (port: number) => ({
    base_url: `http://127.0.0.1:${port}/v1`,
    api_key: VENDOR_KEY,
    max_concurrency: 20_000,
  });
  const price = { input: 0.15, cached_input: 0.075, output: 0.6 };
  const file = join(folder, 'config.yaml');
  const whole = {
    listen: { port: 0 },
    admin: { port: 0 },
    store: `sqlite:${join(folder, 'tollgate.db')}`,
    usage: { spool: join(folder, 'usage') },
    upstreams: { vendor: vendor(upstream), large: vendor(largeUpstream) },
    models: {
      [ALIAS]: { targets: [{ upstream: 'vendor', model: UPSTREAM_MODEL }], price },
      [LARGE_ALIAS]: { targets: [{ upstream: 'large', model: UPSTREAM_MODEL }], price },
    },
    tiers: { Pro: LIMITS },
    // Streams of the bench are as silent as they are meant to be.
    stream: { keepalive: '10m' },
    drain: { timeout: '1s' },
    ...config,
  };
  writeFileSync(file, stringify(whole));
  return file;
}

/** Only against a process that hangs. */
const ISSUE_MS = 5 * 60_000;

/** Makes a key with the command line, as support would. */
export async function issueKey(processes: Processes, configFile: string): Promise<string> {
  const words = [MAIN, 'keys', 'issue', '--tier', 'Pro', '--config', configFile];
  return (await processes.run(process.execPath, words, ISSUE_MS)).trim();
}

export interface GatewaySubject extends Subject {
  readonly configFile: string;
  readonly key: string;
  readonly adminUrl: string;
}

/** How often a gateway is asked whether its usage is in the store. */
const ASK_MS = 250;

/** Resolves when the store has all usage of a gateway, which is part of what its requests cost. */
export async function usageWritten({ adminUrl }: Pick<GatewaySubject, 'adminUrl'>): Promise<void> {
  for (;;) {
    const text = await (await fetch(`${adminUrl}/metrics`)).text();
    const waiting = text.match(/^tollgate_usage_waiting\{.*$/gm) ?? [];
    if (waiting.length > 0 && waiting.every((line) => line.endsWith(' 0'))) return;
    await new Promise((resolve) => setTimeout(resolve, ASK_MS));
  }
}

export async function startGateway(processes: Processes, options: GatewayOptions): Promise<GatewaySubject> {
  const configFile = writeConfig(options);
  const key = options.key ?? (await issueKey(processes, configFile));
  const log = join(options.folder, 'access.log');
  const inside = options.inside === true ? ['--expose-gc', '--import', INSIDE] : [];
  const started = await processes.start(
    process.execPath,
    [...(options.flags ?? []), ...inside, options.program ?? MAIN, 'serve', '--config', configFile],
    {
      stdout: openSync(log, 'a'),
      ready: /listening on (http:\S+)\s+metrics and probes +(http:\/\/[^/]+)/,
      ...(options.files === undefined ? {} : { files: options.files }),
    },
  );
  const url = `${started.said?.[1]}${CHAT}`;
  return {
    name: 'gateway',
    url,
    pids: [started.pid],
    headers: { authorization: `Bearer ${key}` },
    alias: ALIAS,
    model: ALIAS,
    large: { url, alias: LARGE_ALIAS },
    emptyLog: () => truncateSync(log),
    process: started,
    ...(options.inside === true
      ? {
          settle: async () => Number((await started.ask('settle', /inside: settled (\d+)/))[1]),
        }
      : {}),
    stop: started.stop,
    configFile,
    key,
    adminUrl: `${started.said?.[2]}`,
  };
}
