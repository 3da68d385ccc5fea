// The endpoints of Anthropic's API that take a model.
import { statusOfError } from '../../http/exchange/anthropic-error.ts';
import { judgeErrorObject } from '../../upstream/error-outcome.ts';
import { NO_USAGE } from '../../wire/token-usage.ts';
import type { Endpoint, RequestFacts } from '../contracts/endpoint.ts';
import { modelsIn } from '../request/other-models.ts';
import { wants } from '../request/request-members.ts';
import { estimateTokens } from '../request/token-estimate.ts';
import { MessageReader } from './message-events.ts';

/** Lists whose elements may name a model: of another try, and of an advisor. */
const NAMING = ['fallbacks', 'tools'] as const;

/** `POST /v1/messages` */
const MESSAGES: Endpoint = {
  name: 'messages',
  path: 'messages',
  // SDKs name beta features in the query.
  keepsQuery: true,
  wanted: wants(NAMING),
  otherModels: (body, scan) => NAMING.flatMap((name) => modelsIn(body, scan.others.get(name))),
  readFacts: (_, scan) => ({ stream: scan.stream, estimate: estimateTokens(scan) }),
  frames: () => new MessageReader(),
  judgeAnswer: (text, headers) => judgeErrorObject(text, headers, statusOfError(text)),
};

/** `POST /v1/messages/count_tokens`: counts the input of a message, without charge. */
const COUNT_TOKENS: Endpoint = {
  ...MESSAGES,
  path: 'messages/count_tokens',
  readFacts: factsWithoutUsage,
};

export const MESSAGE_ENDPOINTS: readonly Endpoint[] = [MESSAGES, COUNT_TOKENS];

/** Of calls that count tokens, which vendors do without charge. */
export function factsWithoutUsage(): RequestFacts {
  return {
    stream: false,
    estimate: { prompt: 0, completion: 0, isBounded: true },
    usage: NO_USAGE,
    quantities: {},
  };
}
