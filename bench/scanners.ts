// How fast the byte scanners of src/proxy are, next to JSON.parse in the same run: `node bench/scanners.ts`.
// Figures are medians of many samples; a ratio above 1 means that the scanner is faster.
import { isUtf8 } from 'node:buffer';
import { scanRequest } from '../src/proxy/request/request-scan.ts';
import { readChunk, readCompletion } from '../src/wire/chat-chunk.ts';
import { SseFrameScanner } from '../src/wire/sse-frames.ts';

const MIB = 1024 * 1024;
const SAMPLES = 25;
/** A sample repeats its work until it has taken about this long, so that the clock's own error does not count. */
const SAMPLE_NS = 4e6;

/** Keeps results alive, so that the work is not optimised away. */
let sink = 0;

function median(values: number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? Number.NaN;
}

function timeOf(work: () => number, repeats: number): number {
  const start = process.hrtime.bigint();
  for (let i = 0; i < repeats; i++) sink += work();
  return Number(process.hrtime.bigint() - start);
}

/** Medians in ns of one run of each, measured in turns so that a slow moment of the machine hits all of them. */
function compare(...works: (() => number)[]): number[] {
  const runs = works.map((work) => {
    let repeats = 1;
    // The first rounds also let the compiler see the code.
    for (let warm = 0; warm < 300 && repeats < 1e6; warm++) {
      const spent = timeOf(work, repeats);
      if (spent >= SAMPLE_NS && warm >= 5) break;
      if (spent < SAMPLE_NS) repeats = Math.ceil(repeats * Math.min(2, SAMPLE_NS / spent + 0.1));
    }
    return { work, repeats, samples: [] as number[] };
  });
  for (let i = 0; i < SAMPLES; i++) {
    for (const run of runs) run.samples.push(timeOf(run.work, run.repeats) / run.repeats);
  }
  return runs.map((run) => median(run.samples));
}

function row(name: string, size: string, ns: number, bytes: number, parseNs: number): void {
  const each = ns >= 1e6 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e3).toFixed(2)} µs`;
  const speed = `${((bytes / ns) * 1e3).toFixed(0)} MB/s`;
  console.log(
    `${name.padEnd(34)}${size.padStart(10)}${each.padStart(12)}${speed.padStart(14)}${(parseNs / ns).toFixed(2).padStart(9)}x`,
  );
}

function parseSize(text: Buffer): number {
  const value: unknown = JSON.parse(text.toString('utf8'));
  return value === null ? 0 : 1;
}

function requestRow(name: string, body: Buffer): void {
  const [scan = 0, parse = 0] = compare(
    () => scanRequest(body).insertAt,
    () => (isUtf8(body) ? parseSize(body) : 0),
  );
  const size = body.length >= MIB ? `${(body.length / MIB).toFixed(1)} MiB` : `${body.length} B`;
  row(name, size, scan, body.length, parse);
}

const user = (content: string) => ({ role: 'user', content });
const chat = (messages: unknown[], more: object = {}) =>
  Buffer.from(JSON.stringify({ model: 'gpt-4o-mini', stream: true, temperature: 0.2, ...more, messages }));

const image = `data:image/png;base64,${Buffer.alloc(15 * MIB, 0x5a).toString('base64')}`;
const prose = 'The scanner walks over the text once and notes where the values stand, nothing else. ';
const code = '\tif (a === "b\\n") {\n\t\treturn \'x\';\n\t}\n'.repeat(14 * 1024);
const tool = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Current weather',
    parameters: { type: 'object', properties: { city: { type: 'string' }, unit: { enum: ['C', 'F'] } } },
  },
};

console.log(
  `Node ${process.version}; medians of ${SAMPLES} samples; ratio to JSON.parse(buffer.toString()) with isUtf8\n`,
);
console.log(
  'scanRequest'.padEnd(34) +
    'size'.padStart(10) +
    'time'.padStart(12) +
    'speed'.padStart(14) +
    'ratio'.padStart(10),
);
requestRow(
  'base64 image',
  chat([{ role: 'user', content: [{ type: 'image_url', image_url: { url: image } }] }]),
);
requestRow('escape-heavy (source code)', chat([user(code)]));
requestRow('escapes only', chat([user('\n'.repeat(MIB / 2))]));
requestRow(
  'typical',
  chat([{ role: 'system', content: prose.repeat(4) }, user(prose.repeat(10))], { tools: [tool, tool] }),
);
requestRow('small', chat([user('Say hello.')]));
requestRow(
  'many short strings',
  chat([user('x')], { stop: Array.from({ length: 120_000 }, (_, i) => `w${i % 1000}`) }),
);
requestRow(
  'many messages, CJK',
  chat(Array.from({ length: 2000 }, () => user('数据流在这里被扫描一次，然后原样传递。'.repeat(8)))),
);
requestRow(
  'numbers (token ids)',
  chat([user('x')], { logit_bias: Array.from({ length: 150_000 }, (_, i) => i * 7) }),
);

function frame(delta: object, more = ''): string {
  const choices = JSON.stringify([{ index: 0, delta, logprobs: null, finish_reason: null }]);
  return `data: {"id":"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG","object":"chat.completion.chunk","created":1741570283,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":${choices},"usage":null,"obfuscation":"r4N7vQ2m"${more}}\n\n`;
}

const words = ['Hello', ' there', ',', ' this', ' is', ' a', ' stream', ' of', ' tokens', '.'];
const frames = Array.from({ length: 100 }, (_, i) => frame({ content: words[i % words.length] }));
const toolFrames = Array.from({ length: 100 }, () =>
  frame({ tool_calls: [{ index: 0, function: { arguments: '{"city":' } }] }),
);

function frameRow(name: string, texts: readonly string[], batch: number): void {
  const chunks: Buffer[] = [];
  for (let i = 0; i < texts.length; i += batch) chunks.push(Buffer.from(texts.slice(i, i + batch).join('')));
  const bytes = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  const cut = () => {
    const scanner = new SseFrameScanner();
    let count = 0;
    for (const chunk of chunks) count += scanner.push(chunk).ends.length;
    return count;
  };
  const read = () => {
    const scanner = new SseFrameScanner();
    let found = 0;
    for (const chunk of chunks) {
      const { bytes: ready, ends } = scanner.push(chunk);
      let start = 0;
      for (const end of ends) {
        if (readChunk(ready, start, end).hasOutput) found++;
        start = end;
      }
    }
    return found;
  };
  const parse = () => {
    let found = 0;
    for (const text of parseable) found += parseSize(text);
    return found;
  };
  const parseable = texts.map((text) => Buffer.from(text.slice(6).trim()));
  const [cutNs = 0, readNs = 0, parseNs = 0] = compare(cut, read, parse);
  const size = `${Math.round(bytes / texts.length)} B`;
  const each = (ns: number) => `${(ns / texts.length).toFixed(0)} ns`;
  const speed = `${((bytes / readNs) * 1e3).toFixed(0)} MB/s`;
  console.log(
    name.padEnd(34) +
      size.padStart(10) +
      each(cutNs).padStart(12) +
      each(readNs).padStart(14) +
      speed.padStart(14) +
      `${(parseNs / readNs).toFixed(2)}x`.padStart(10),
  );
}

console.log(
  `\n${'stream, per frame'.padEnd(34)}${'size'.padStart(10)}${'cut'.padStart(12)}${'cut and read'.padStart(14)}${'speed'.padStart(14)}${'ratio'.padStart(10)}`,
);
frameRow('LF, one frame a chunk', frames, 1);
frameRow('LF, twenty frames a chunk', frames, 20);
frameRow('tool calls, one frame a chunk', toolFrames, 1);
frameRow(
  'CRLF, one frame a chunk',
  frames.map((text) => text.replaceAll('\n', '\r\n')),
  1,
);
frameRow(
  'CRLF, twenty frames a chunk',
  frames.map((text) => text.replaceAll('\n', '\r\n')),
  20,
);
frameRow(
  'CR, twenty frames a chunk',
  frames.map((text) => text.replaceAll('\n', '\r')),
  20,
);

const completion = Buffer.from(
  JSON.stringify({
    id: 'chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG',
    object: 'chat.completion',
    created: 1741570283,
    model: 'gpt-4o-mini-2024-07-18',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: prose.repeat(20), refusal: null },
        finish_reason: 'stop',
      },
    ],
    usage: { prompt_tokens: 19, completion_tokens: 10, total_tokens: 29 },
  }),
);
const [completionNs = 0, parseNs = 0] = compare(
  () => (readCompletion(completion).valid ? 1 : 0),
  () => parseSize(completion),
);
console.log('');
row('readCompletion', `${completion.length} B`, completionNs, completion.length, parseNs);
if (sink === 0) console.log('nothing was measured');
