// The properties of the byte scanners, each to be run as often as the caller likes. The tests of src/proxy run them briefly,
// scanners.test.ts beside this file at length.
import { isUtf8 } from 'node:buffer';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { expect } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { AnswerWalk } from '../../src/proxy/answer/large-answer.ts';
import { LargeScan } from '../../src/proxy/request/large-request.ts';
import { type RequestScan, type Wanted, wants } from '../../src/proxy/request/request-members.ts';
import { jsonString, scanRequest, spliceSpans } from '../../src/proxy/request/request-scan.ts';
import { contentsOf } from '../../src/wire/answer-shape.ts';
import { type ChunkFacts, readChunk, readCompletion } from '../../src/wire/chat-chunk.ts';
import { JsonScanner, MAX_DEPTH, type Span } from '../../src/wire/json/json.ts';
import { MemberNames } from '../../src/wire/json/json-bytes.ts';
import { JsonWalk } from '../../src/wire/json/json-walk.ts';
import { BOM, bytesStartWith, surplusFields } from '../../src/wire/sse-fields.ts';
import { SseFrameScanner } from '../../src/wire/sse-frames.ts';
import {
  chunkValue,
  cuts,
  damage,
  damaged,
  frameBytes,
  jsonValue,
  manyValues,
  nearJson,
  pieces,
  requestValue,
  shortTokens,
  spelled,
  transcript,
} from './generators.ts';
import { factsOf, framesOf, hasFailed, hasUniqueKeys, isObject, parse } from './oracles.ts';

export const properties = {
  'the scanner accepts what JSON.parse accepts': fc.property(
    fc.oneof(spelled(jsonValue), manyValues),
    fc.option(damage),
    (text, harm) => {
      const bytes = harm === null ? Buffer.from(text) : damaged(Buffer.from(text), harm);
      fc.pre(isUtf8(bytes));
      // Between other bytes, at an odd place: nothing outside the range may be read.
      const inside = Buffer.concat([Buffer.from('"[{1'), bytes, Buffer.from('1"]}')]);
      expect(isJson(inside, 4, 4 + bytes.length)).toBe(parse(bytes.toString()).ok);
    },
  ),

  'scanRequest agrees with JSON.parse': fc.property(
    spelled(requestValue),
    fc.option(damage),
    (text, harm) => {
      checkRequest(harm === null ? Buffer.from(text) : damaged(Buffer.from(text), harm));
    },
  ),

  'a request that comes in pieces is found to be what it is as a whole': fc.property(
    fc.oneof(
      { weight: 4, arbitrary: spelled(requestValue) },
      { weight: 1, arbitrary: spelled(jsonValue) },
      { weight: 1, arbitrary: nearJson },
    ),
    fc.option(damage),
    fc.nat({ max: 2 }),
    fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1, maxLength: 8 }),
    (text, harm, index, steps) => {
      const body = harm === null ? Buffer.from(text) : damaged(Buffer.from(text), harm);
      const wanted = WANTED[index] ?? wants([]);
      const expected = outcomeOf(() => scanRequest(body, wanted));
      expect(outcomeOf(() => scanInSteps(body, wanted, steps))).toEqual(expected);
      expect(outcomeOf(() => scanInSteps(body, wanted, [1]))).toEqual(expected);
    },
  ),

  'values that nobody reads are checked like those that are read, however the text is cut': fc.property(
    fc.oneof(spelled(jsonValue), { weight: 4, arbitrary: shortTokens }, { weight: 4, arbitrary: manyValues }),
    fc.option(damage),
    cuts,
    (text, harm, places) => {
      const clean = Buffer.from(text);
      const bytes = harm === null ? clean : damaged(clean, harm);
      const read = walkOf(MAX_DEPTH, [bytes]);
      for (const depth of [0, 1, 2]) {
        const isReported = ({ at }: WalkedValue) => at <= depth;
        const expected = { ...read, values: read.values.filter(isReported) };
        for (const cutting of [[bytes], pieces(bytes, places)])
          expect(walkOf(depth, cutting)).toEqual(expected);
      }
      const scanner = new JsonScanner();
      scanner.reset(bytes);
      scanner.skipValue();
      scanner.finish();
      expect([scanner.fault, scanner.fault === null ? 0 : scanner.faultAt]).toEqual([
        read.fault,
        read.faultAt,
      ]);
    },
  ),

  'splicing changes the spans and nothing else': fc.property(
    spelled(requestValue),
    fc.string(),
    fc.string(),
    (text, model, value) => {
      const body = Buffer.from(text);
      const scan = scanOrError(body);
      fc.pre(!(scan instanceof GatewayError));
      const { modelSpan } = scan;
      if (modelSpan === null) throw new Error('a request without a model');
      const at = { start: scan.insertAt, end: scan.insertAt };
      const added = Buffer.concat([Buffer.from(',"added by the test":'), jsonString(value)]);
      const spliced = spliceSpans(body, [
        { span: at, bytes: added },
        { span: modelSpan, bytes: jsonString(model) },
      ]);
      const { start, end } = modelSpan;
      const parts = [
        body.subarray(0, start),
        jsonString(model),
        body.subarray(end, at.start),
        added,
        body.subarray(at.start),
      ];
      expect(spliced.equals(Buffer.concat(parts))).toBe(true);
      // Entries, so that a member `__proto__` is compared like any other.
      const before = Object.entries(JSON.parse(text)).map(([name, was]) => [
        name,
        name === 'model' ? model : was,
      ]);
      const after = Object.entries(JSON.parse(spliced.toString()));
      expect(isDeepStrictEqual(after, [...before, ['added by the test', value]])).toBe(true);
    },
  ),

  'the frames do not depend on how the stream is cut': fc.property(
    transcript,
    fc.option(damage),
    cuts,
    (clean, harm, places) => {
      const bytes = harm === null ? clean : damaged(clean, harm);
      const { frames, rest } = framesOf(bytes);
      for (const cutting of [[bytes], pieces(bytes, places), singleBytes(bytes)]) {
        const seen = scanFrames(cutting);
        expect(Buffer.concat([...seen.frames, seen.rest]).equals(bytes)).toBe(true);
        expect(hex(joinLineFeeds(seen.frames))).toEqual(hex(frames));
        expect(seen.rest.equals(rest)).toBe(true);
      }
    },
  ),

  'what was metered does not depend on how the stream is cut': fc.property(
    transcript,
    cuts,
    (bytes, places) => {
      const told = (cutting: Buffer[]) =>
        joinLineFeeds(scanFrames(cutting).frames).map((frame) => withoutSpan(readChunk(frame)));
      expect(told(pieces(bytes, places))).toEqual(told([bytes]));
    },
  ),

  'a frame without its surplus lines has all its other lines': fc.property(transcript, (bytes) => {
    for (const frame of framesOf(bytes).frames) {
      const isDataless = readChunk(frame).kind === 'comment';
      const surplus = surplusFields(frame, 0, frame.length, isDataless, true) ?? [];
      const hasMark = bytesStartWith(frame, BOM, 0, frame.length);
      const fields = linesOf(hasMark ? frame.subarray(BOM.length) : frame);
      const lines = fields.filter((line) => !isSurplusLine(line, isDataless));
      if (surplus === 'all') expect(lines.join('')).toBe('');
      else {
        const edits = surplus.map((span) => ({ span, bytes: Buffer.alloc(0) }));
        expect(linesOf(spliceSpans(frame, edits))).toEqual(lines);
      }
    }
  }),

  'readChunk takes any bytes': fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
    checkFacts(Buffer.from(bytes));
  }),

  'readChunk agrees with JSON.parse': fc.property(frameBytes, fc.option(damage), (clean, harm) => {
    checkFacts(harm === null ? clean : damaged(clean, harm));
  }),

  'readCompletion agrees with JSON.parse': fc.property(
    spelled(chunkValue),
    fc.option(damage),
    (text, harm) => {
      const body = harm === null ? Buffer.from(text) : damaged(Buffer.from(text), harm);
      const facts = readCompletion(body);
      const parsed = parse(body.toString());
      const value = parsed.ok && isObject(parsed.value) ? parsed.value : undefined;
      // A mark before the text is skipped here, and is a fault for JSON.parse.
      fc.pre(body[0] !== 0xef);
      expect(facts.valid).toBe(value !== undefined);
      if (value === undefined || !hasUniqueKeys(body.toString(), value)) return;
      const { choices } = value;
      const hasChoices = choices !== undefined && choices !== null && !isDeepStrictEqual(choices, []);
      expect(facts.isError).toBe(Boolean(value['error']) && !hasChoices);
      expect(facts.hasFailed).toBe(hasFailed(value));
      checkModel(body, facts.modelSpan, value['model']);
    },
  ),

  'an answer means the same read as it comes, however it is cut': fc.property(
    spelled(chunkValue),
    fc.option(damage),
    fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 8 }),
    (text, harm, steps) => {
      const body = harm === null ? Buffer.from(text) : damaged(Buffer.from(text), harm);
      // A mark before the text is known beforehand, and then nothing is read as it comes.
      fc.pre(body[0] !== 0xef);
      const walk = new AnswerWalk();
      const whole = inSteps(body, steps, (memory, size) => walk.advance(memory, size, false));
      walk.advance(whole, whole.length, true);
      const { valid, isError, hasChoices, modelSpan, usage } = readCompletion(body);
      const { contents, ...facts } = walk.facts();
      expect(facts).toEqual({ valid, isError, hasChoices, modelSpan, usage });
      if (valid) expect(contents).toEqual(contentsOf(body));
    },
  ),
};

/** The names that are read within `stream_options`. */
const OPTION_NAMES = new MemberNames(['include_usage']);
const WANTED: readonly Wanted[] = [
  wants([]),
  wants(['store', 'role', 'max_output_tokens']),
  wants(['input'], 'default'),
];

/**
 * As it comes: into memory that has other bytes behind, and is another one now and then.
 * @returns all of it
 */
function inSteps(
  body: Buffer,
  steps: readonly number[],
  advance: (memory: Buffer, size: number) => void,
): Buffer {
  let memory = Buffer.alloc(body.length + 20, '"[{1');
  for (let size = 0, at = 0; size < body.length; at++) {
    const next = Math.min(body.length, size + (steps[at % steps.length] ?? 1));
    body.copy(memory, size, size, next);
    size = next;
    if (at % 7 === 6) memory = Buffer.from(memory);
    advance(memory, size);
  }
  return memory.subarray(0, body.length);
}

function scanInSteps(body: Buffer, wanted: Wanted, steps: readonly number[]): RequestScan {
  const scan = new LargeScan(wanted);
  const whole = inSteps(body, steps, (memory, size) => scan.advance(memory, size));
  return scan.end(whole);
}

function outcomeOf(scan: () => RequestScan): RequestScan | object {
  try {
    return scan();
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    const { code, message, param } = error;
    return { code, message, param };
  }
}

interface WalkedValue {
  readonly at: number;
  readonly start: number;
  readonly end: number;
  readonly isMember: boolean;
}

/** The values down to a depth, and the fault. The bytes behind what has arrived are others than those that will come. */
function walkOf(depth: number, cutting: readonly Buffer[]) {
  const values: WalkedValue[] = [];
  const walk = new JsonWalk({
    depth,
    key() {},
    value: (at, start, end, isMember) => values.push({ at, start, end, isMember }),
  });
  const bytes = Buffer.alloc(
    cutting.reduce((sum, { length }) => sum + length, 16),
    '}"],1',
  );
  let end = 0;
  for (const [index, piece] of cutting.entries()) {
    end += piece.copy(bytes, end);
    walk.advance(bytes, end, index === cutting.length - 1);
  }
  const { fault, insertAt } = walk;
  return { values, fault, faultAt: fault === null ? 0 : walk.faultAt, insertAt };
}

function isJson(bytes: Buffer, start: number, end: number): boolean {
  const scanner = new JsonScanner();
  scanner.reset(bytes, start, end);
  scanner.skipValue();
  return scanner.finish();
}

function scanOrError(body: Buffer): RequestScan | GatewayError {
  try {
    return scanRequest(body);
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
}

function checkRequest(body: Buffer): void {
  const result = scanOrError(body);
  const code = result instanceof GatewayError ? result.code : 'ok';
  const parsed = isUtf8(body) ? parse(body.toString()) : ({ ok: false } as const);
  if (!parsed.ok) {
    expect(code).toBe('invalid_json');
    return;
  }
  if (!isObject(parsed.value)) {
    expect(code).toBe('invalid_body');
    return;
  }
  expect(code).not.toBe('invalid_json');
  expect(code).not.toBe('invalid_body');
  if (code === 'duplicate_parameter') return;
  const { model, stream, stream_options: options } = parsed.value;
  if (hasOtherSpelling(parsed.value, wants([]).names) || hasOtherSpelling(options, OPTION_NAMES)) {
    expect(code).not.toBe('ok');
    return;
  }
  const asked = isObject(options) ? options['include_usage'] : undefined;
  const isFlag = (value: unknown) => value === undefined || value === null || typeof value === 'boolean';
  const isSound =
    typeof model === 'string' &&
    model !== '' &&
    isFlag(stream) &&
    isFlag(asked) &&
    isCount(parsed.value['max_tokens'], Number.NEGATIVE_INFINITY) &&
    isCount(parsed.value['max_completion_tokens'], Number.NEGATIVE_INFINITY) &&
    isCount(parsed.value['n'], 1) &&
    (options === undefined || options === null || isObject(options));
  expect(code === 'ok').toBe(isSound);
  if (result instanceof GatewayError) return;
  expect(result.model).toBe(model);
  expect(result.stream).toBe(stream === true);
  expect(result.includeUsage).toBe(asked === true);
  checkModel(body, result.modelSpan, model);
  expect(valueAt(body, result.streamOptions)).toEqual(options);
  expect(valueAt(body, result.includeUsageSpan)).toEqual(asked);
  expect(body.subarray(result.insertAt).toString().trim()).toBe('}');
}

/** Whether an object has a name that is read, spelled in another way. */
function hasOtherSpelling(value: unknown, names: MemberNames): boolean {
  if (!isObject(value)) return false;
  return Object.keys(value).some((key) => {
    const bytes = Buffer.from(JSON.stringify(key));
    const name = names.find(bytes, 1, bytes.length - 1);
    return name !== undefined && name !== key;
  });
}

function isCount(value: unknown, least: number): boolean {
  if (value === undefined || value === null) return true;
  if (typeof value === 'string' && !/^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(value)) return false;
  return (typeof value === 'number' || typeof value === 'string') && Number(value) >= least;
}

function valueAt(bytes: Buffer, span: Span | null): unknown {
  return span === null ? undefined : JSON.parse(bytes.toString('utf8', span.start, span.end));
}

function checkModel(bytes: Buffer, span: Span | null, model: unknown): void {
  expect(valueAt(bytes, span)).toBe(typeof model === 'string' ? model : undefined);
}

function checkFacts(frame: Buffer): void {
  const facts = readChunk(frame);
  const expected = factsOf(frame);
  if (expected === undefined) {
    expect(facts.kind).toBe('json');
    return;
  }
  const { model, ...rest } = expected;
  expect(withoutSpan(facts)).toEqual(rest);
  checkModel(frame, facts.modelSpan, model);
  // The same in the midst of other bytes, where spans are offsets in the whole.
  const around = Buffer.concat([Buffer.from('data: {"a":'), frame, Buffer.from('data: {}\n\n')]);
  const inside = readChunk(around, 11, 11 + frame.length);
  expect(withoutSpan(inside)).toEqual(rest);
  checkModel(around, inside.modelSpan, model);
}

function withoutSpan({ modelSpan: _, ...rest }: ChunkFacts): Omit<ChunkFacts, 'modelSpan'> {
  return rest;
}

export function scanFrames(cutting: readonly Buffer[]): { frames: Buffer[]; rest: Buffer } {
  const scanner = new SseFrameScanner();
  const frames = cutting.flatMap((piece) => {
    const { bytes, ends } = scanner.push(piece);
    if ((ends.at(-1) ?? 0) !== bytes.length) throw new Error('the batch has bytes outside its frames');
    return ends.map((end, i) => bytes.subarray(i === 0 ? 0 : ends[i - 1], end));
  });
  return { frames, rest: scanner.rest() };
}

/** A line feed that came late goes back to the frame whose last line it ends. */
function joinLineFeeds(frames: readonly Buffer[]): Buffer[] {
  const joined: Buffer[] = [];
  for (const frame of frames) {
    const last = joined.at(-1);
    if (frame.equals(Buffer.from('\n')) && last?.at(-1) === 0x0d)
      joined[joined.length - 1] = Buffer.concat([last, frame]);
    else joined.push(frame);
  }
  return joined;
}

/** The lines of a frame without their line ends. */
function linesOf(frame: Buffer): string[] {
  return frame
    .toString('latin1')
    .split(/\r\n|\r|\n/)
    .slice(0, -1);
}

function isSurplusLine(line: string, isDataless: boolean): boolean {
  return /^(?:id|retry)(?::|$)/.test(line) || (isDataless && /^(?:event|data)(?::|$)/.test(line));
}

function singleBytes(bytes: Buffer): Buffer[] {
  return Array.from(bytes, (byte) => Buffer.from([byte]));
}

function hex(frames: readonly Buffer[]): string[] {
  return frames.map((frame) => frame.toString('hex'));
}
