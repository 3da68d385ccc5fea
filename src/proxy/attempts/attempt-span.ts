// The span of one attempt in a trace: what it says of the upstream and the model.
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import type { AttemptSpan } from '../../telemetry/traces/tracer.ts';
import type { RelayRequest } from '../contracts/receiver.ts';
import type { Target } from '../routes/route-table.ts';

/** Of a model's name, in characters. */
const MAX_NAME = 256;

/** @param number of the attempt among those of its request, from 1 */
export function beginSpan(
  { exchange, endpoint, stream }: RelayRequest,
  { upstream, model }: Target,
  number: number,
): AttemptSpan | undefined {
  const { name, provider, server } = upstream;
  return exchange.span?.attempt({
    upstream: name,
    provider,
    // Where a pattern serves, the client named it.
    model: maskKeys(model).slice(0, MAX_NAME),
    stream,
    endpoint: endpoint.name,
    server,
    number,
  });
}
