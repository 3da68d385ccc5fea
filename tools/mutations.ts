// The single changes that can be made in a TypeScript file, and a random order of those of many files. Comments, types, texts for
// logs and documentation, and messages of programming errors are left alone.
import { parseSync } from 'vite';
import { randomFrom } from '../test/helpers/random.ts';

/** One change: the bytes of a span become other text. */
export interface Mutation {
  /** Offsets in the text. */
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

export interface Mutant extends Mutation {
  readonly file: string;
}

type Node = { readonly type: string; readonly start: number; readonly end: number } & Record<string, unknown>;

const SWAPPED: Readonly<Record<string, string>> = {
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '==': '!=',
  '!=': '==',
  '===': '!==',
  '!==': '===',
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  '%': '*',
  '&': '|',
  '|': '&',
  '<<': '>>',
  '>>': '<<',
  '>>>': '<<',
  '&&': '||',
  '||': '&&',
  '++': '--',
  '--': '++',
  '+=': '-=',
  '-=': '+=',
  '??=': '=',
  '||=': '=',
};
/** From here on a number is a size or a duration: one more is no other behaviour, so it is doubled. */
const LARGE = 1000;
/** Calls whose absence no behaviour shows, with their arguments. */
const SILENT =
  /^(?:this\.#?)?(?:\w+\.)?(?:logger|log)\b|^(?:[\w.#?]+\.)?(?:unref|clearTimeout|clearImmediate|clearInterval)\([^()]*\);?$/;
/** Calls of these names document a field. */
const DOCUMENTING = /^(?:describe|meta)$/;

/** All changes that can be made in a file. */
export function mutationsOf(file: string, text: string): Mutation[] {
  const { program } = parseSync(file, text);
  const found: Mutation[] = [];
  const slice = ({ start, end }: Node) => text.slice(start, end);
  const put = ({ start, end }: Node, replacement: string) => found.push({ start, end, text: replacement });
  /** Swaps the operator that is somewhere in `[start, end)`. */
  const swap = (operator: unknown, start: number, end: number) => {
    const swapped = SWAPPED[String(operator)];
    const at = text.indexOf(String(operator), start);
    if (swapped !== undefined && at >= start && at < end)
      found.push({ start: at, end: at + String(operator).length, text: swapped });
  };
  const giveNothing = (value: Node) => {
    if (slice(value) === 'undefined' || SILENT.test(slice(value))) return;
    put(value, 'undefined');
    if (/^(?:Call|Await|Identifier|Member)/.test(value.type)) put(value, `!(${slice(value)})`);
  };
  const visit = (node: Node, parent: Node | undefined): void => {
    if (node.type.startsWith('TS') && !/^TS(?:As|NonNull|Satisfies)/.test(node.type)) return;
    if (/^(?:Import|ExportAll)/.test(node.type)) return;
    switch (node.type) {
      case 'BinaryExpression':
      case 'LogicalExpression': {
        const { left, right, operator } = node;
        if (!isNode(left) || !isNode(right)) break;
        if (operator === '??') {
          put(node, `(${slice(left)})`);
          put(node, `(${slice(right)})`);
        } else if (operator !== '+' || !/['"`]/.test(slice(node))) swap(operator, left.end, right.start);
        break;
      }
      case 'AssignmentExpression':
        if (isNode(node['left']) && isNode(node['right']))
          swap(node['operator'], node['left'].end, node['right'].start);
        break;
      case 'UpdateExpression':
        swap(node['operator'], node.start, node.end);
        break;
      case 'UnaryExpression':
        if (node['operator'] === '!') found.push({ start: node.start, end: node.start + 1, text: '' });
        break;
      case 'IfStatement':
      case 'ConditionalExpression':
        if (isNode(node['test'])) put(node['test'], `!(${slice(node['test'])})`);
        break;
      case 'Literal':
        if (parent?.type === 'Property' && parent['key'] === node) break;
        mutateLiteral(node, node['value']);
        break;
      case 'TemplateLiteral':
        if (slice(node) !== '``' && parent?.type !== 'TaggedTemplateExpression') put(node, '``');
        break;
      case 'ReturnStatement':
        if (isNode(node['argument'])) giveNothing(node['argument']);
        else if (parent?.type === 'IfStatement' || parent?.type === 'BlockStatement') put(node, ';');
        break;
      case 'ArrowFunctionExpression':
        if (isNode(node['body']) && node['body'].type !== 'BlockStatement') giveNothing(node['body']);
        break;
      case 'ThrowStatement':
      case 'BreakStatement':
      case 'ContinueStatement':
        put(node, ';');
        break;
      case 'ExpressionStatement':
        if (SILENT.test(slice(node))) return;
        if (!/^(?:super\(|['"])/.test(slice(node))) put(node, ';');
        break;
      case 'NewExpression':
        if (isNode(node['callee']) && /^(?:Range|Type)?Error$/.test(slice(node['callee']))) return;
        break;
      case 'CallExpression': {
        const { callee } = node;
        if (SILENT.test(slice(node))) return;
        if (!isNode(callee) || !isNode(callee['property']) || !DOCUMENTING.test(slice(callee['property'])))
          break;
        visit(callee, node);
        return;
      }
      case 'Property':
        if (isNode(node['key']) && slice(node['key']) === 'help') return;
        break;
    }
    for (const child of Object.values(node)) {
      for (const each of Array.isArray(child) ? child : [child]) if (isNode(each)) visit(each, node);
    }
  };
  const mutateLiteral = (node: Node, value: unknown): void => {
    if (typeof value === 'boolean') put(node, String(!value));
    if (typeof value === 'number') put(node, `(${slice(node)} ${value < LARGE ? '+ 1' : '* 2'})`);
    if (typeof value === 'string') put(node, value === '' ? "'mutated'" : "''");
  };
  if (isNode(program)) visit(program, undefined);
  return found;
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && typeof Reflect.get(value, 'type') === 'string';
}

/** All mutants of the files, each once, in an order that the seed determines. @param files path → text */
export function drawMutants(files: ReadonlyMap<string, string>, seed: number): Mutant[] {
  const left = Array.from(files).flatMap(([file, text]) =>
    mutationsOf(file, text).map((mutation) => ({ file, ...mutation })),
  );
  const random = randomFrom(seed);
  const drawn: Mutant[] = [];
  while (left.length > 0) {
    // The last one takes the place of the drawn one.
    const at = Math.floor(random() * left.length);
    const last = left.pop();
    const mutant = left[at] ?? last;
    if (mutant !== undefined) drawn.push(mutant);
    if (last !== undefined && at < left.length) left[at] = last;
  }
  return drawn;
}

/** The text of the file with the change. */
export function applied(text: string, { start, end, text: replacement }: Mutation): string {
  return text.slice(0, start) + replacement + text.slice(end);
}
