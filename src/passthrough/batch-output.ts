// What a batch used: by its output file, whose lines are answers, or by the report in the batch itself, where the vendor writes one.
import { type Prices, priceAt } from '../config/prices.ts';
import type { Endpoint } from '../proxy/contracts/endpoint.ts';
import { tokensOfImages } from '../proxy/endpoints/media-endpoints.ts';
import { tokensOf } from '../proxy/request/token-estimate.ts';
import type { PricedUse } from '../usage/records/token-price.ts';
import { contentsOf } from '../wire/answer-shape.ts';
import { readCompletion } from '../wire/chat-chunk.ts';
import { memberOf, parse } from '../wire/error-answer.ts';
import { JsonScanner } from '../wire/json/json.ts';
import { MAX_TOKENS, NO_USAGE, type Quantities, sumOfTokens, type Tokens } from '../wire/token-usage.ts';
import { linesOf } from './batch-input.ts';

const OPEN_OBJECT = 0x7b;
/** First digits of a status that is an error: 4 and 5. */
const ERROR_DIGITS = [0x34, 0x35];
const ENDED: ReadonlySet<unknown> = new Set(['completed', 'failed', 'expired', 'cancelled']);
const RUNNING: ReadonlySet<unknown> = new Set(['validating', 'in_progress', 'finalizing', 'cancelling']);
/** Prices of what the report of a batch tells. */
const REPORTED: ReadonlySet<string> = new Set(['input', 'cached_input', 'output', 'reasoning', 'request']);

export interface BatchUse extends PricedUse {
  readonly isEstimated: boolean;
}

/** Of one output file. @throws GatewayError as `linesOf` */
export async function usesInOutput(
  pieces: AsyncIterable<Buffer>,
  endpoint: Endpoint,
): Promise<readonly BatchUse[]> {
  let sum = new OutputUsage(endpoint);
  const sums = [sum];
  for await (const line of linesOf(pieces)) {
    if (sum.isFull) {
      sum = new OutputUsage(endpoint);
      sums.push(sum);
    }
    sum.add(line);
  }
  return sums.map(({ tokens, quantities, isCounted, isEstimated }) => ({
    tokens,
    quantities,
    isCounted,
    isEstimated,
  }));
}

/** A batch as its upstream has it. */
export interface BatchState {
  /** It uses nothing more, and its output is named if it has one. */
  readonly isOver: boolean;
  /** The id of its output file. */
  readonly output?: string | undefined;
  /** What it reports of its usage; undefined also for a sum that may be above the bound of a count. */
  readonly reported?: BatchUse | undefined;
}

/** @param body of an answer @returns a batch that runs, for what is no batch */
export function batchStateIn(body: Buffer): BatchState {
  const batch = parse(body.toString());
  const [status, file] = [memberOf(batch, 'status'), memberOf(batch, 'output_file_id')];
  const completed = memberOf(memberOf(batch, 'request_counts'), 'completed');
  const requests = typeof completed === 'number' && completed > 0 ? Math.floor(completed) : 0;
  const { usage } = readCompletion(body);
  const isReported = usage !== null && usage.total > 0 && usage.total <= MAX_TOKENS / 2 && requests > 0;
  const reported = isReported
    ? { tokens: usage, quantities: { requests }, isCounted: true, isEstimated: false }
    : undefined;
  const output = typeof file === 'string' ? file : undefined;
  const isShown = output !== undefined || reported !== undefined;
  const isOver = ENDED.has(status) ? isShown || requests === 0 : output !== undefined && !RUNNING.has(status);
  return { isOver, output, reported };
}

/** Whether a report tells all that has a price. That of responses may leave out what their tools used. */
export function isReportEnough(
  { name, measures }: Endpoint,
  prices: Prices | undefined,
  at: number,
): boolean {
  const kinds = Object.keys(priceAt(prices, at) ?? {});
  return name !== 'responses' && measures === undefined && kinds.every((kind) => REPORTED.has(kind));
}

/** What the answers in an output file used. */
class OutputUsage {
  tokens: Tokens = NO_USAGE;
  isEstimated = false;
  /** Some answer reports tokens. */
  isCounted = false;
  #answers = 0;
  #images = 0;
  readonly #isOfImages: boolean;
  readonly #scanner = new JsonScanner();

  constructor({ measures }: Endpoint) {
    this.#isOfImages = measures === 'images';
  }

  /** A batch may use more than one answer can. */
  get isFull(): boolean {
    return this.tokens.prompt + this.tokens.completion > MAX_TOKENS / 2;
  }

  get quantities(): Quantities {
    return { requests: this.#answers, images: this.#images };
  }

  add(line: Buffer): void {
    const answer = this.#answerIn(line);
    if (answer === undefined) return;
    const images = this.#isOfImages ? (contentsOf(answer).items ?? 0) : 0;
    this.#answers += 1;
    this.#images += images;
    const { usage } = readCompletion(answer);
    if (usage === null) this.isEstimated = true;
    else this.isCounted ||= usage.measured === undefined;
    const completion = this.#isOfImages ? tokensOfImages(images) : tokensOf(answer.length);
    this.tokens = sumOfTokens(this.tokens, usage ?? { ...NO_USAGE, completion });
  }

  /** `response.body` of a line; undefined for a line without an answer, or with one that is an error: vendors charge nothing for it. */
  #answerIn(line: Buffer): Buffer | undefined {
    const scanner = this.#scanner;
    scanner.reset(line);
    let answer: Buffer | undefined;
    let isError = false;
    if (!scanner.enterObject()) return undefined;
    while (scanner.nextMember()) {
      if (!scanner.keyIs('response') || !scanner.enterObject()) {
        scanner.skipValue();
        continue;
      }
      while (scanner.nextMember()) {
        const isStatus = scanner.keyIs('status_code');
        const isBody = scanner.keyIs('body');
        isError ||= isStatus && ERROR_DIGITS.includes(scanner.peek());
        const span = scanner.skipIf(OPEN_OBJECT);
        if (isBody && span !== null) answer = line.subarray(span.start, span.end);
      }
    }
    return isError ? undefined : answer;
  }
}
