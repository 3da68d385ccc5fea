// From the start of the process to the first answer, by three ways to start it: by node, with the compile cache of V8 filled
// by earlier starts, and by `npm start`.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Bench } from '../bench.ts';
import { tell } from '../bench.ts';
import { rowsOf, type Sample } from '../figures.ts';
import { ALIAS, requestBody } from '../load/traffic.ts';
import { findProgram } from '../processes.ts';
import { issueKey, MAIN, writeConfig } from '../subjects/gateway.ts';
import { freePort } from '../subjects/nginx.ts';
import { CHAT } from '../subjects/subject.ts';
import type { Scenario } from './scenario.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PATIENCE_MS = 30_000;

interface Way {
  readonly name: string;
  readonly command: string;
  readonly words: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

export const coldStart: Scenario = {
  id: 'cold-start',
  sections: ['cold-start'],
  async run(bench) {
    const { folder, rounds, processes } = bench;
    const port = await freePort();
    const ports = { upstream: bench.upstream.port, largeUpstream: bench.largeUpstream.port };
    const home = join(folder, 'cold-start');
    const file = writeConfig({ folder: home, ...ports, config: { listen: { port } } });
    const key = await issueKey(processes, file);
    const serve = [MAIN, 'serve', '--config', file];
    const cache = { NODE_COMPILE_CACHE: join(home, 'compile-cache') };
    const npm = findProgram('npm');
    const ways: Way[] = [
      { name: 'node', command: process.execPath, words: serve },
      { name: 'node, V8 compile cache', command: process.execPath, words: serve, env: cache },
      ...(npm === undefined
        ? []
        : [{ name: 'npm start', command: npm, words: ['--prefix', ROOT, 'start', '--', '--config', file] }]),
    ];
    const results = new Map<string, Sample[]>(ways.map(({ name }) => [name, []]));
    // The first start of each fills caches: the file system's, and the compiler's.
    for (let round = 0; round <= rounds; round += 1) {
      for (const way of round % 2 === 0 ? ways : ways.toReversed()) {
        const sample = await once(bench, way, port, key);
        tell(`cold start ${round}/${rounds}  ${way.name}  ${sample['answered_ms']?.toFixed(0)} ms`);
        if (round > 0) results.get(way.name)?.push(sample);
      }
    }
    return [
      {
        id: 'cold-start',
        title: 'Cold start',
        note:
          'From the start of the process until it accepts a connection, and until a chat completion with a valid key has been answered, ' +
          'which includes the one Argon2 run of that key.',
        columns: [
          { field: 'accepts_ms', heading: 'accepts ms', digits: 0 },
          { field: 'answered_ms', heading: 'answered ms', digits: 0 },
        ],
        rows: rowsOf(results),
      },
    ];
  },
};

async function once({ processes }: Bench, way: Way, port: number, key: string): Promise<Sample> {
  const url = `http://127.0.0.1:${port}`;
  const began = performance.now();
  const started = await processes.start(way.command, way.words, {
    isGroup: true,
    ...(way.env && { env: way.env }),
  });
  for (;;) {
    const accepts = await fetch(url).then(
      (response) => response.arrayBuffer().then(() => true),
      () => false,
    );
    if (accepts) break;
    if (performance.now() - began > PATIENCE_MS)
      throw new Error(`${way.name}: it does not accept connections`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  const accepts_ms = performance.now() - began;
  const response = await fetch(`${url}${CHAT}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: requestBody({ model: ALIAS }),
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  await response.arrayBuffer();
  if (!response.ok) throw new Error(`${way.name}: the first answer had status ${response.status}`);
  const answered_ms = performance.now() - began;
  await started.stop();
  return { accepts_ms, answered_ms };
}
