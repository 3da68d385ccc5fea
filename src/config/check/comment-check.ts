// Warns of values that YAML takes for comments: `color: #1a4fa0` has no value.
import { isGiven, type ReportFault, type YamlNode, type YamlPath } from '../source/yaml-tree.ts';

/** @param text what `node` was read from */
export function checkComments(node: YamlNode, text: string, path: YamlPath, warn: ReportFault): void {
  const { start } = node.span;
  if (node.kind === 'branch')
    for (const [name, { value }] of node.entries) checkComments(value, text, [...path, name], warn);
  else if (node.kind === 'list')
    for (const [index, item] of node.items.entries()) checkComments(item, text, [...path, index], warn);
  // Comments for people begin with a space, as a rule.
  else if (!isGiven(node) && /^[ \t]*#[^\s#]/.test(text.slice(start, start + 200)))
    warn(start, path, 'is empty, because `#` begins a comment: write a value with `#` in quotes');
}
