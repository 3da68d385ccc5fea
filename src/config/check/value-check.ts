// Warns of values that mean something else than they look like: `color: #1a4fa0` has no value, `$NAME` is no variable.
import { isGiven, isLiteral, type ReportFault, type YamlNode, type YamlPath } from '../source/yaml-tree.ts';

/** A whole value that is a variable elsewhere: in a shell, on Windows, in manifests of Kubernetes, in templates, in LiteLLM's file. */
const VARIABLE = /^(\$\w+|\$env:\w+|%\w+%|\$\(\w+\)|\{\{.*\}\}|os\.environ\/\w+|ENV\[.*\])$/;

/** @param text what `node` was read from */
export function checkValues(node: YamlNode, text: string, path: YamlPath, warn: ReportFault): void {
  const { start } = node.span;
  if (node.kind === 'branch')
    for (const [name, { value }] of node.entries) checkValues(value, text, [...path, name], warn);
  else if (node.kind === 'list')
    for (const [index, item] of node.items.entries()) checkValues(item, text, [...path, index], warn);
  // Comments for people begin with a space, as a rule.
  else if (!isGiven(node) && /^[ \t]*#[^\s#]/.test(text.slice(start, start + 200)))
    warn(start, path, 'is empty, because `#` begins a comment: write a value with `#` in quotes');
  else if (node.kind === 'leaf' && isLiteral(node) && VARIABLE.test(node.value))
    warn(start, path, `is taken as it is: a variable of the environment is written \`\${NAME}\` here`);
}
