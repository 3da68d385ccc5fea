// Converts zod issues to messages with positions in the file. No message quotes a value.
import { z } from 'zod';
import { MAX_FAULTS } from '../config-fault.ts';
import { childOf, fieldNames, optionOf } from '../schema/field-kinds.ts';
import { nearest } from './nearest.ts';
import { showsKey } from './visible-text.ts';
import { findNode, isLiteral, type YamlNode, type YamlPath, type YamlPosition } from './yaml-tree.ts';

type Schema = z.core.$ZodType;

/** Names in backticks, with commas. */
export const quote = (names: Iterable<string>): string => [...names].map((name) => `\`${name}\``).join(', ');

/** `; did you mean …?` */
export function suggestion(word: string | undefined, candidates: Iterable<string>): string {
  const near = word === undefined ? undefined : nearest(word, candidates);
  return near === undefined ? '' : `; did you mean \`${near}\`?`;
}

/** A note that the value came from the environment or a file, which the line may not show. */
export function origin(node: YamlNode | undefined): string {
  if (node?.kind !== 'leaf') return '';
  const { variables, files } = node;
  return [
    ...(variables.length > 0 ? [` (from the environment: ${variables.join(', ')})`] : []),
    ...(files.length > 0 ? [` (from the file: ${files.join(', ')})`] : []),
  ].join('');
}

/** Fields by the names that other programs give them, and what is no field. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  rpm: '; here it is `requests_per_minute`',
  tpm: '; here it is `tokens_per_minute`',
  rpd: '; here it is `requests_per_day`',
  tpd: '; here it is `tokens_per_day`',
  prompt: '; here it is `input`',
  completion: '; here it is `output`',
  monthly: '; here it is `per_month`',
  daily: '; here it is `per_day`',
  database: '; here it is `store`',
  log: '; the level of the log is in the environment: LOG_LEVEL=debug',
  log_level: '; the level of the log is in the environment: LOG_LEVEL=debug',
};
const MAX_KNOWN = 12;

/** Of a value that is empty because a comment begins where it should: `color: #1a4fa0`. Comments for people begin with a space, as a rule. */
export function commentFault(node: YamlNode, text: string): string | undefined {
  const { start } = node.span;
  const isComment = node.kind === 'blank' && /^[ \t]*#[^\s#]/.test(text.slice(start, start + 200));
  return isComment ? 'is empty, because `#` begins a comment: write a value with `#` in quotes' : undefined;
}

/** An empty field could mean anything, such as a limit that is none. */
function emptyText(schema: Schema | undefined): string {
  if (schema === undefined) return 'is empty';
  const isOptional = schema instanceof z.ZodExactOptional || z.safeParse(schema, undefined).success;
  if (!isOptional) return 'is empty';
  const section = optionOf(schema, 'branch');
  if (!(section instanceof z.ZodObject)) return 'is empty: write a value, or leave it out';
  const none = z.safeParse(section, {}).success ? ', `{}` for none of them,' : ',';
  return `is empty: write its fields${none} or leave it out`;
}

/** What a value of the wrong form has to be. @param fields of a mapping of fields */
function formText(expected: string, node: YamlNode, fields: readonly string[]): string {
  const isRun = node.kind === 'leaf' && node.isPlain && /^[\w-]+:\S/.test(node.value);
  const space = isRun ? '; a space is missing behind a colon' : '';
  switch (expected) {
    case 'object':
      return `must be a mapping of fields${fields.length === 0 || fields.length > MAX_KNOWN ? '' : `: ${quote(fields)}`}${space}`;
    case 'record':
      return `must be a mapping${node.kind === 'list' ? ', with a name and a colon in place of each dash' : ''}${space}`;
    case 'array':
      return `must be a list: ${node.kind === 'branch' ? 'begin each entry with a dash' : 'put it in brackets'}`;
    case 'string':
      return 'must be a single value';
    default:
      return 'has the wrong form';
  }
}

/** A missing field is reported at the key of its parent. */
function missing(path: YamlPath, tree: YamlNode): YamlPosition {
  for (let length = path.length - 1; length >= 0; length -= 1) {
    const parent = findNode(tree, path.slice(0, length));
    if (parent !== undefined) {
      return { at: (parent.key ?? parent.node.span).start, path, message: 'is missing' };
    }
  }
  return { at: tree.span.start, path, message: 'is missing' };
}

/** Whether a mapping has the field that a hint names, if it names one. */
function isFieldHint(hint: string, names: readonly string[]): boolean {
  const [, named] = /`(\w+)`/.exec(hint) ?? [];
  return named === undefined || names.includes(named);
}

function unknownKeys(
  keys: readonly string[],
  path: YamlPath,
  tree: YamlNode,
  schema: Schema,
): YamlPosition[] {
  const at: Schema | undefined = path.reduce<Schema | undefined>(childOf, schema);
  const names = fieldNames(at);
  const parent = findNode(tree, path)?.node;
  return keys.flatMap((key, index): YamlPosition[] => {
    const entry = parent?.kind === 'branch' ? parent.entries.get(key) : undefined;
    if (entry === undefined) return [];
    const word = showsKey(at, key, entry.value) ? key : undefined;
    // Later keys are not shown, and the search for near names is slow.
    const near = index < MAX_FAULTS ? suggestion(word, names) : '';
    const other = word !== undefined && Object.hasOwn(ELSEWHERE, word) ? ELSEWHERE[word] : undefined;
    const known = names.length > MAX_KNOWN ? '; see config.schema.json' : `; known here: ${quote(names)}`;
    const hint = (other !== undefined && isFieldHint(other, names) ? other : near) || known;
    const message = word === undefined ? 'unknown key' : `unknown key \`${word}\``;
    return [{ at: entry.key.start, path, message: message + hint }];
  });
}

/**
 * @param issue of a parse of `schema`
 * @param tree the parsed tree
 * @param text what it was read from
 * @returns usually one mark; none if the tree already has a fault at this position
 */
export function issueMarks(
  issue: z.core.$ZodIssue,
  tree: YamlNode,
  text: string,
  schema: Schema,
): readonly YamlPosition[] {
  const { path } = issue;
  if (issue.code === 'invalid_union') {
    const node = findNode(tree, path)?.node;
    // The faults of the form that was used: a list is the last option. Their paths begin here.
    const faults = (node?.kind === 'list' ? issue.errors.at(-1) : issue.errors[0]) ?? [];
    return faults.flatMap((each) =>
      issueMarks({ ...each, path: [...path, ...each.path] }, tree, text, schema),
    );
  }
  if (issue.code === 'unrecognized_keys') return unknownKeys(issue.keys, path, tree, schema);
  const found = findNode(tree, path);
  if (found === undefined) return [missing(path, tree)];
  const { node, key } = found;
  if (node.kind === 'leaf' && node.broken) return [];
  const at = path.reduce<Schema | undefined>(childOf, schema);
  if (node.kind === 'blank')
    return [{ at: (key ?? node.span).start, path, message: commentFault(node, text) ?? emptyText(at) }];
  if (node.kind === 'leaf' && node.emptied && issue.code === 'invalid_type')
    return [{ at: node.span.start, path, message: `is empty${origin(node)}` }];
  const mark = (message: string): readonly YamlPosition[] => [
    { at: node.span.start, path, message: message + origin(node) },
  ];
  switch (issue.code) {
    case 'invalid_type':
      return mark(formText(issue.expected, node, fieldNames(at)));
    case 'invalid_value': {
      const values = issue.values.map(String);
      const word = node.kind === 'leaf' && isLiteral(node) ? node.value : undefined;
      return mark(
        values.length === 1
          ? `must be ${quote(values)}`
          : `must be one of ${quote(values)}${suggestion(word, values)}`,
      );
    }
    case 'too_small':
      return mark('must not be empty');
    case 'custom':
      return mark(issue.message);
    default:
      return mark('is not valid');
  }
}
