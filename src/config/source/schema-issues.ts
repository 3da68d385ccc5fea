// Converts zod issues to messages with positions in the file. No message quotes a value.
import type { z } from 'zod';
import { MAX_FAULTS } from '../config-fault.ts';
import { childOf, fieldNames } from '../schema/field-kinds.ts';
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

const WANTED: Readonly<Record<string, string>> = {
  object: 'must be a mapping of fields',
  record: 'must be a mapping',
  array: 'must be a list',
  string: 'must be a single value',
};

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
    const hint = near !== '' || names.length > 12 ? near : `; known here: ${quote(names)}`;
    const message = word === undefined ? 'unknown key' : `unknown key \`${word}\``;
    return [{ at: entry.key.start, path, message: message + hint }];
  });
}

/**
 * @param issue of a parse of `schema`
 * @param tree the parsed tree
 * @returns usually one mark; none if the tree already has a fault at this position
 */
export function issueMarks(issue: z.core.$ZodIssue, tree: YamlNode, schema: Schema): readonly YamlPosition[] {
  const { path } = issue;
  if (issue.code === 'invalid_union') {
    const node = findNode(tree, path)?.node;
    // The faults of the form that was used: a list is the last option. Their paths begin here.
    const faults = (node?.kind === 'list' ? issue.errors.at(-1) : issue.errors[0]) ?? [];
    return faults.flatMap((each) => issueMarks({ ...each, path: [...path, ...each.path] }, tree, schema));
  }
  if (issue.code === 'unrecognized_keys') return unknownKeys(issue.keys, path, tree, schema);
  const found = findNode(tree, path);
  if (found === undefined) return [missing(path, tree)];
  const { node, key } = found;
  if (node.kind === 'leaf' && node.broken) return [];
  if (node.kind === 'blank' || (node.kind === 'leaf' && node.emptied && issue.code === 'invalid_type')) {
    const at = node.kind === 'blank' ? (key ?? node.span).start : node.span.start;
    return [{ at, path, message: `is empty${origin(node)}` }];
  }
  const mark = (message: string): readonly YamlPosition[] => [
    { at: node.span.start, path, message: message + origin(node) },
  ];
  switch (issue.code) {
    case 'invalid_type':
      return mark(WANTED[issue.expected] ?? 'has the wrong form');
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
