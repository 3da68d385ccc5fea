// Decides which text of the file excerpts and messages may show, and checks names of mappings. It is an allow-list: a value is shown
// only if the schema marks its field as harmless; text at an unknown field may be a misplaced credential.
import { z } from 'zod';
import { childOf, fieldMetadata, fieldNames, optionOf, type Shown } from '../schema/field-kinds.ts';
import { nearest } from './nearest.ts';
import type { SourceSpan, YamlNode, YamlPath, YamlPosition } from './yaml-tree.ts';

type Schema = z.core.$ZodType | undefined;

export interface VisibleSpan extends SourceSpan {
  readonly shown: Shown;
}

/** Whether a key may be shown. A key without a value may be a credential with a missing colon. */
export function showsKey(schema: Schema, key: string, value: YamlNode): boolean {
  const inner = optionOf(schema, 'branch');
  if (inner instanceof z.ZodRecord) {
    return fieldMetadata.get(inner.keyType)?.shows?.(key, value.kind === 'blank') ?? false;
  }
  const names = fieldNames(inner);
  if (names.includes(key)) return true;
  if (names.length === 0 || !/^\w[\w-]{0,39}$/.test(key)) return false;
  // A misspelt field, or a plain word.
  return nearest(key, names) !== undefined || (value.kind !== 'blank' && /^[a-z_-]+$/i.test(key));
}

/** How a scalar of this schema may be shown. */
export function shownOf(schema: Schema): Shown {
  const inner = optionOf(schema, 'leaf');
  if (inner instanceof z.ZodEnum) return 'short';
  return (inner instanceof z.ZodString ? fieldMetadata.get(inner)?.shown : undefined) ?? 'never';
}

const STRICTNESS: Readonly<Record<Shown, number>> = { plain: 0, short: 1, url: 2, never: 3 };

/** All keys and scalars of the tree with their visibility, in text order. */
export function visibleSpans(tree: YamlNode, schema: Schema): readonly VisibleSpan[] {
  const spans = new Map<number, VisibleSpan>();
  // An alias can reach the same text twice; the stricter visibility wins.
  const add = (span: SourceSpan, shown: Shown): void => {
    const known = spans.get(span.start);
    if (span.end > span.start && (known === undefined || STRICTNESS[known.shown] < STRICTNESS[shown])) {
      spans.set(span.start, { ...span, shown });
    }
  };
  const walk = (node: YamlNode, at: Schema): void => {
    switch (node.kind) {
      case 'leaf':
        add(node.span, shownOf(at));
        break;
      case 'blank':
        // `null` and `~` are harmless.
        add(node.span, 'plain');
        break;
      case 'list':
        node.items.forEach((item, index) => {
          walk(item, childOf(at, index));
        });
        break;
      case 'branch':
        for (const [key, entry] of node.entries) {
          add(entry.key, showsKey(at, key, entry.value) ? 'plain' : 'never');
          walk(entry.value, childOf(at, key));
        }
        for (const { name, key } of node.repeated) {
          const first = node.entries.get(name);
          if (first !== undefined) add(key, showsKey(at, name, first.value) ? 'plain' : 'never');
        }
    }
  };
  walk(tree, schema);
  return [...spans.values()].sort((a, b) => a.start - b.start);
}

const HIDDEN = '****';

/** `models["gpt-4.1"].targets[0].upstream`, with hidden keys as `****`. */
export function pathText(path: YamlPath, tree: YamlNode | undefined, schema: Schema): string {
  let text = '';
  let node = tree;
  let at = schema;
  for (const step of path) {
    if (typeof step === 'number') {
      text += `[${step}]`;
      node = node?.kind === 'list' ? node.items[step] : undefined;
    } else {
      const key = String(step);
      const entry = node?.kind === 'branch' ? node.entries.get(key) : undefined;
      const shown = entry === undefined ? fieldNames(at).includes(key) : showsKey(at, key, entry.value);
      if (/^[A-Za-z_][A-Za-z0-9_-]*$/.test(key) || !shown) {
        text += `${text === '' ? '' : '.'}${shown ? key : HIDDEN}`;
      } else {
        text += `[${JSON.stringify(key)}]`;
      }
      node = entry?.value;
    }
    at = childOf(at, step);
  }
  return text;
}

/** Marks names that their mapping does not allow, such as a model with two `*`. */
export function nameMarks(tree: YamlNode, schema: Schema, path: YamlPath = []): readonly YamlPosition[] {
  if (tree.kind === 'list') {
    return tree.items.flatMap((item, index) => nameMarks(item, childOf(schema, index), [...path, index]));
  }
  if (tree.kind !== 'branch') return [];
  const inner = optionOf(schema, 'branch');
  const problemOf = inner instanceof z.ZodRecord ? fieldMetadata.get(inner.keyType)?.problem : undefined;
  return [...tree.entries].flatMap(([key, entry]) => {
    const message = problemOf?.(key);
    const below = nameMarks(entry.value, childOf(schema, key), [...path, key]);
    return message === undefined ? below : [{ at: entry.key.start, path: [...path, key], message }, ...below];
  });
}
