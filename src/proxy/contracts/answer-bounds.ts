// The largest stream event and JSON answers that are relayed.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { formatSize } from '../../config/schema/units.ts';

type AnswerBounds = DynamicConfig['max_answer'];

/** A sentence for the client that names the setting to raise. */
export function tooLarge(bound: keyof AnswerBounds, bounds: AnswerBounds): string {
  const what = bound === 'frame' ? 'a stream event' : 'an answer';
  const size = formatSize(bounds[bound]);
  return `The upstream sent ${what} that is larger than ${size}; the operator can raise max_answer.${bound}.`;
}
