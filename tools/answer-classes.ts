// The table of docs/relay.md that says whose fault an upstream's error answer is, from the classes that the gateway judges by.
// `node tools/answer-classes.ts docs/relay.md` writes it into the page.
import { readFileSync, writeFileSync } from 'node:fs';
import { ERRORS } from '../src/errors.ts';
import { ANSWER_CLASSES, type AnswerClass } from '../src/upstream/error-class.ts';

const MARKERS = /(<!-- answer classes -->\n)[\s\S]*?(\n<!-- end -->)/;

/** Of OpenAI's SDKs with their defaults: they repeat 408, 409, 429 and 5xx unless `x-should-retry` is false. */
function sdkRetries({ code, isShown, answers }: AnswerClass): string {
  if (!isShown) return ERRORS[code].retry === 'no' ? 'no (`x-should-retry: false`)' : 'yes';
  return /408|429|5xx/.test(answers) ? 'yes' : 'no';
}

function row(each: AnswerClass): string {
  const { answers, fault, isShown, code, triesNextTarget, vote, alert } = each;
  const reads = isShown ? 'status and text of the upstream' : `${ERRORS[code].status}, our text`;
  const cells = [
    answers,
    fault,
    reads,
    `\`${code}\``,
    triesNextTarget ? 'yes' : 'no',
    vote === 'limited' ? 'no; the target is left alone for a time' : vote === 'none' ? 'no' : 'yes',
    alert === undefined ? '–' : `\`${alert}\``,
    sdkRetries(each),
  ];
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
}

/** @returns the page with what stands between its markers made new */
export function fillAnswerClasses(page: string): string {
  const classes: readonly AnswerClass[] = Object.values(ANSWER_CLASSES);
  const table = [
    '| the upstream answers | fault | the client reads | `outcome` | next target | counts in the breaker | alert | SDKs retry |',
    '|---|---|---|---|---|---|---|---|',
    ...classes.map(row),
  ].join('\n');
  return page.replace(MARKERS, (_all, begin: string, end: string) => `${begin}${table}${end}`);
}

const [, script, page] = process.argv;
if (import.meta.filename === script && page !== undefined)
  writeFileSync(page, fillAnswerClasses(readFileSync(page, 'utf8')));
