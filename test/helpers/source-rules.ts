// The rules of the source tree as functions of its text: layers, cycles, names, sizes, shortcuts past the compiler.
// It reads no files; architecture.test.ts feeds it the real tree, and small invented ones to see each rule fail.
import { dirname, join, normalize } from 'node:path/posix';
import { parseSync, Visitor } from 'vite';

/** Path under `src/` → text. */
export type Sources = ReadonlyMap<string, string>;

export interface Finding {
  readonly rule:
    | 'layer'
    | 'cycle'
    | 'missing'
    | 'name'
    | 'size'
    | 'opening'
    | 'any'
    | 'double-cast'
    | 'non-null'
    | 'ts-comment'
    | 'console'
    | 'timer'
    | 'log-record'
    | 'syntax';
  readonly file: string;
  readonly detail: string;
}

/** From the top down. An import may go to any lower layer, to none above, and not across within a layer. */
export const LAYERS: readonly (readonly string[])[] = [
  ['main.ts'],
  ['app.ts', 'cli'],
  ['process'],
  ['proxy', 'billing'],
  ['auth', 'limits', 'upstream', 'usage'],
  ['http', 'store', 'redis'],
  ['telemetry'],
  ['config', 'deadline.ts', 'errors.ts', 'recent-map.ts'],
  ['payment-errors.ts', 'upstream-errors.ts'],
];

export const LONGEST_FILE = 400;

/** Names that say nothing about what is inside. */
const EMPTY_NAMES = /^(utils?|helpers?|managers?|services?|common|misc)$/;

/** What writes the log may read its record; to all others it is only written, so that the log decides nothing. */
const MAY_READ_RECORD = /^(telemetry|process)\//;

export function inspect(sources: Sources): Finding[] {
  const findings: Finding[] = [];
  const edges = new Map<string, string[]>();
  for (const [file, text] of sources) {
    const read = readSource(file, text);
    findings.push(...read.findings, ...textFindings(file, text));
    const targets = read.imports
      .filter((specifier) => specifier.startsWith('.'))
      .map((specifier) => normalize(join(dirname(file), specifier)));
    edges.set(file, targets);
    findings.push(...targets.flatMap((target) => edgeFinding(sources, file, target)));
  }
  return [...findings, ...cycles(edges)];
}

function edgeFinding(sources: Sources, from: string, to: string): Finding[] {
  const finding = (rule: Finding['rule'], detail: string): Finding[] => [{ rule, file: from, detail }];
  // Files beside src (package.json, say) are no modules of a layer.
  if (to.startsWith('..')) return [];
  if (!sources.has(to)) return finding('missing', `${to} does not exist`);
  const [fromPart, toPart] = [part(from), part(to)];
  if (fromPart === toPart) return [];
  const [above, below] = [layerOf(fromPart), layerOf(toPart)];
  // A part without a layer is reported by its files.
  if (above === -1 || below === -1) return [];
  if (below > above) return [];
  return finding('layer', `imports ${to}, which is ${below === above ? 'beside' : 'above'} it`);
}

/** The folder directly under src, or the file when it lies there itself. */
function part(file: string): string {
  return file.split('/')[0] ?? file;
}

function layerOf(name: string): number {
  return LAYERS.findIndex((layer) => layer.includes(name));
}

function textFindings(file: string, text: string): Finding[] {
  const findings: Finding[] = [];
  const add = (rule: Finding['rule'], detail: string): void => void findings.push({ rule, file, detail });
  if (layerOf(part(file)) === -1) add('layer', `${part(file)} is in no layer`);
  const name = file.split(/[/.-]/).find((word) => EMPTY_NAMES.test(word));
  if (name !== undefined) add('name', `"${name}" says nothing about what is inside`);
  const lines = text.replace(/\n$/, '').split('\n').length;
  if (lines > LONGEST_FILE) add('size', `${lines} lines, more than ${LONGEST_FILE}`);
  if (!/^(#!.*\n)?(\/\/ ?\S|\/\*)/.test(text)) add('opening', 'does not open with a comment on what it owns');
  return findings;
}

function readSource(file: string, text: string): { imports: string[]; findings: Finding[] } {
  const imports: string[] = [];
  const findings: Finding[] = [];
  const add = (rule: Finding['rule'], node: { start: number }, detail: string): void => {
    const line = text.slice(0, node.start).split('\n').length;
    findings.push({ rule, file: `${file}:${line}`, detail });
  };
  const result = parseSync(file, text, { lang: 'ts', sourceType: 'module' });
  for (const error of result.errors) findings.push({ rule: 'syntax', file, detail: error.message });
  for (const comment of result.comments) {
    if (/@ts-(ignore|expect-error|nocheck)/.test(comment.value))
      add('ts-comment', comment, comment.value.trim());
  }
  const mayPrint = file === 'main.ts' || file.startsWith('cli/');
  /** Of the access-log record: members that are assigned to, and places where it is only named to reach a member. */
  const written = new Set<string>();
  const named = new Set<string>();
  const addRead = (node: Place): void => {
    if (!MAY_READ_RECORD.test(file)) add('log-record', node, `reads ${text.slice(node.start, node.end)}`);
  };
  const visitor = new Visitor({
    CallExpression: (node) => {
      const [callback] = node.arguments;
      const called = text.slice(node.callee.start, node.callee.end);
      const does = callback === undefined ? '' : text.slice(callback.start, callback.end);
      // A command that ends by itself has nothing else to do meanwhile.
      const isLone = file.startsWith('cli/') && called === 'AbortSignal.timeout';
      const judges = called === 'setTimeout' && /\breject\(|GatewayError|#fail\(/.test(does);
      if (file !== 'deadline.ts' && !isLone && (judges || called === 'AbortSignal.timeout'))
        add(
          'timer',
          node,
          `${called} judges others also by what held up this process: startDeadline does not`,
        );
    },
    AssignmentExpression: ({ operator, left }) => {
      if (operator === '=') written.add(placeOf(left));
    },
    ImportDeclaration: (node) => void imports.push(node.source.value),
    ExportAllDeclaration: (node) => void imports.push(node.source.value),
    ExportNamedDeclaration: (node) => {
      if (node.source !== null) imports.push(node.source.value);
    },
    ImportExpression: (node) => {
      if (node.source.type === 'Literal' && typeof node.source.value === 'string')
        imports.push(node.source.value);
    },
    TSImportType: (node) => void imports.push(node.source.value),
    TSAnyKeyword: (node) => add('any', node, 'any'),
    TSNonNullExpression: (node) => add('non-null', node, text.slice(node.start, node.end)),
    TSAsExpression: (node) => {
      if (node.expression.type === 'TSAsExpression')
        add('double-cast', node, text.slice(node.start, node.end));
    },
    VariableDeclarator: ({ init }) => {
      if (init?.type === 'Identifier' && isRecord(init)) addRead(init);
    },
    MemberExpression: (node) => {
      const { object } = node;
      const isWritten = written.has(placeOf(node));
      if (isRecord(object)) {
        named.add(placeOf(object));
        if (!isWritten) addRead(node);
      }
      if (isRecord(node) && !isWritten && !named.has(placeOf(node))) addRead(node);
      if (!mayPrint && object.type === 'Identifier' && object.name === 'console') {
        add('console', node, text.slice(node.start, node.end));
      }
    },
  });
  visitor.visit(result.program);
  return { imports, findings };
}

interface Place {
  readonly start: number;
  readonly end: number;
}

const placeOf = ({ start, end }: Place): string => `${start}-${end}`;

/** `access`, or the member of that name of anything. */
function isRecord(node: {
  readonly type: string;
  readonly name?: unknown;
  readonly property?: unknown;
}): boolean {
  const { type, name, property } = node;
  if (type === 'Identifier') return name === 'access';
  if (type !== 'MemberExpression' || typeof property !== 'object' || property === null) return false;
  return 'name' in property && property.name === 'access';
}

/** One finding per group of files that import each other in a ring (depth-first; a file on the path again is a ring). */
function cycles(edges: ReadonlyMap<string, readonly string[]>): Finding[] {
  const findings: Finding[] = [];
  const done = new Set<string>();
  const path: string[] = [];
  const visit = (file: string): void => {
    const at = path.indexOf(file);
    if (at !== -1) {
      findings.push({ rule: 'cycle', file, detail: [...path.slice(at), file].join(' > ') });
      return;
    }
    if (done.has(file)) return;
    path.push(file);
    for (const target of edges.get(file) ?? []) visit(target);
    path.pop();
    done.add(file);
  };
  for (const file of edges.keys()) visit(file);
  return findings;
}
