// The trace span of one attempt: its attributes for the upstream and the model.
import { maskedName } from '../../telemetry/log/key-mask.ts';
import type { AttemptSpan } from '../../telemetry/traces/tracer.ts';
import type { RelayRequest } from '../contracts/receiver.ts';
import type { Target } from '../routes/route-table.ts';

/** @param number of the attempt within its request, from 1 */
export function beginSpan(
  { exchange, endpoint, facts }: RelayRequest,
  { upstream, model }: Target,
  number: number,
): AttemptSpan | undefined {
  const { name, provider, server } = upstream;
  return exchange.span?.attempt({
    upstream: name,
    provider,
    // The client chooses the name where the model is a pattern.
    model: maskedName(model),
    stream: facts.stream,
    endpoint: endpoint.name,
    server,
    number,
  });
}
