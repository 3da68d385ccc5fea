// The client's error message for an answer over a bound of `max_answer`. Each reader checks its bound itself.
import { formatSize } from '../../config/schema/units.ts';
import type { AnswerBounds, RelayRequest } from '../contracts/receiver.ts';

const WHAT: Readonly<Record<keyof AnswerBounds, string>> = {
  frame: 'a stream event',
  json: 'an answer',
  embeddings: 'an answer',
};

/** @returns a sentence that names the setting to raise */
export function tooLarge(which: keyof AnswerBounds, { maxAnswer }: RelayRequest): string {
  const size = formatSize(maxAnswer[which]);
  return `The upstream sent ${WHAT[which]} that is larger than ${size}; the operator can raise max_answer.${which}.`;
}
