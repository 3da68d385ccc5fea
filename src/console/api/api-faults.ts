// What is wrong with a query or a body, in words: where, what is expected, and the nearest name.
import type { z } from 'zod';
import { childOf, fieldNames } from '../../config/schema/field-kinds.ts';
import { quote, suggestion } from '../../config/source/schema-issues.ts';
import { maskKeys } from '../../telemetry/log/key-mask.ts';

type Issue = z.core.$ZodIssue;

interface ApiFault {
  /** Path of the member, with dots; empty for the whole. */
  readonly where: string;
  readonly what: string;
}

const TYPES: Readonly<Record<string, string>> = {
  string: 'a single text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'a JSON object',
  record: 'a JSON object',
};
const MAX_NAMES = 5;
const MAX_NAME = 100;
const FORMATS: Readonly<Record<string, string>> = {
  date: 'a day such as 2030-01-31',
  datetime: 'a time such as 2030-01-31T12:00:00Z',
};

/** @param issues of a parse of `given` by `schema` */
export function faultsIn(issues: readonly Issue[], schema: z.core.$ZodType, given: unknown): ApiFault[] {
  return issues.flatMap((issue) => {
    if (issue.code === 'invalid_union') {
      // The form that was used, by what is in it; otherwise all forms are expected.
      const used = issue.errors.find((errors) => errors.some(({ path }) => path.length > 0));
      const within = used?.map((each) => ({ ...each, path: [...issue.path, ...each.path] }));
      if (within !== undefined) return faultsIn(within, schema, given);
    }
    return [{ where: shown(issue.path.join('.')), what: whatOf(issue, schema, given) }];
  });
}

function whatOf(issue: Issue, schema: z.core.$ZodType, given: unknown): string {
  const value = issue.path.reduce(memberOf, given);
  const expected = expectedBy(issue);
  if (expected === undefined) return issue.message;
  if (issue.code === 'unrecognized_keys') return unknownNames(issue.keys, issue.path, schema);
  if (value === undefined) return `is missing; it is ${either(expected)}`;
  const word = typeof value === 'string' ? suggestion(value, namesIn(issue)) : '';
  return `must be ${either(expected)}${word}`;
}

/** `a, b or c` */
function either(names: readonly string[]): string {
  return [names.slice(0, -1).join(', '), ...names.slice(-1)].filter((part) => part !== '').join(' or ');
}

/** Undefined where the message of the schema says it. */
function expectedBy(issue: Issue): readonly string[] | undefined {
  switch (issue.code) {
    case 'invalid_union':
      // The first of each form: what follows is about a value of this form.
      return issue.errors.flatMap(([each]) =>
        each === undefined ? [] : (expectedBy(each) ?? [each.message]),
      );
    case 'unrecognized_keys':
      return [];
    case 'invalid_type':
      return [TYPES[issue.expected] ?? issue.expected];
    case 'invalid_value':
      return [issue.values.length === 1 ? quote(namesIn(issue)) : `one of ${quote(namesIn(issue))}`];
    case 'invalid_format': {
      const format = FORMATS[issue.format];
      return format === undefined ? undefined : [format];
    }
    case 'too_small':
      if (issue.origin === 'number') return [`at least ${issue.minimum}`];
      return [`a ${issue.origin === 'string' ? 'text' : 'list'} that is not empty`];
    case 'too_big': {
      const most = `at most ${issue.maximum}`;
      if (issue.origin === 'number') return [most];
      return [`${most} ${issue.origin === 'string' ? 'characters' : 'items'} long`];
    }
    default:
      return undefined;
  }
}

function namesIn(issue: Issue): readonly string[] {
  if (issue.code === 'invalid_union') return issue.errors.flat().flatMap(namesIn);
  return issue.code === 'invalid_value' ? issue.values.map(String) : [];
}

function unknownNames(
  keys: readonly string[],
  path: readonly PropertyKey[],
  schema: z.core.$ZodType,
): string {
  const names = fieldNames(path.reduce<z.core.$ZodType | undefined>(childOf, schema));
  const [first] = keys;
  const known = names.length === 0 ? 'no name is known here' : `known here: ${quote(names)}`;
  const near = suggestion(first, names);
  const given = `${quote(keys.slice(0, MAX_NAMES).map(shown))}${keys.length > MAX_NAMES ? ' and more' : ''}`;
  return `unknown ${keys.length === 1 ? 'name' : 'names'} ${given}${near === '' ? `; ${known}` : near}`;
}

/** Names that the client made up can be long, and can be keys. */
function shown(name: string): string {
  return maskKeys(name.length > MAX_NAME ? `${name.slice(0, MAX_NAME)}…` : name);
}

function memberOf(value: unknown, name: PropertyKey): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}
