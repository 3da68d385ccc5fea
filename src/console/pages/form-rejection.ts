// A form that was rejected: whether its page shows it again, and which of its fields is wrong.
import type { GatewayError } from '../../errors.ts';
import { ProblemError } from '../api/api-server.ts';

/** Errors that another value in the form can solve. */
const CORRECTABLE: readonly string[] = ['invalid_value', 'record_conflict', 'record_not_found'];

export function isCorrectable({ code }: GatewayError): boolean {
  return CORRECTABLE.includes(code);
}

/** The name of a field without its kind: see form-body.ts. */
function plain(name: string): string {
  return name.slice(name.indexOf('.') + 1);
}

/** The field that an error is about, by the name in its faults or in its message; undefined where neither says. */
export function faultyField(fields: readonly string[], error: GatewayError): string | undefined {
  const quoted = [...error.message.matchAll(/`(\w+)`/g)].map(([, name]) => name);
  for (const name of [...faultsOf(error), ...quoted]) {
    const field = fields.find((each) => plain(each) === name);
    if (field !== undefined) return field;
  }
  // Behind the colon are values, such as all names that are allowed. Short names are words of other meanings: `for`, `by`.
  const [sentence = ''] = error.message.split(': it is one of');
  const placed = fields
    .filter((field) => plain(field).length > 3)
    .map((field) => ({ field, at: sentence.search(new RegExp(`\\b${plain(field).replace(/s$/, '')}`, 'i')) }))
    .filter(({ at }) => at >= 0);
  return placed.sort((one, other) => one.at - other.at)[0]?.field;
}

function faultsOf(error: GatewayError): readonly string[] {
  const faults: unknown = error instanceof ProblemError ? Reflect.get(error.more, 'faults') : undefined;
  return (Array.isArray(faults) ? faults : []).map(({ where }) => String(where).split('.')[0] ?? '');
}
