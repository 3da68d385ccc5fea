// `npm run audit`: are there known vulnerabilities in what production installs? Unlike `npm audit` it tells "there are" (exit
// 1) from "the registry cannot say" (a warning, exit 0; with --required exit 1), which must neither pass for clean nor stop
// whoever works without a network.
import { npm, type Said } from './npm.ts';

export type Verdict =
  | { readonly outcome: 'clean'; readonly packages: number }
  | { readonly outcome: 'vulnerable'; readonly found: readonly string[] }
  | { readonly outcome: 'unknown'; readonly reason: string };

/** What `npm audit --omit=dev --json` has said. */
export function verdictOf({ code, stdout, stderr }: Said): Verdict {
  const report = parsed(stdout);
  const counts = numbersOf(field(field(report, 'metadata'), 'vulnerabilities'));
  const total = counts.get('total');
  if (total === undefined) {
    const said = field(report, 'message') ?? field(field(report, 'error'), 'summary');
    const line = stderr.trim().split('\n')[0] ?? '';
    const silence = code === null ? 'npm did not answer in time' : 'npm said nothing that can be understood';
    return { outcome: 'unknown', reason: typeof said === 'string' && said !== '' ? said : line || silence };
  }
  const found = Object.entries(objectOf(field(report, 'vulnerabilities'))).map(([name, about]) => {
    const severity = field(about, 'severity');
    return `${name} ${String(field(about, 'range') ?? '')} (${typeof severity === 'string' ? severity : 'unknown'})`;
  });
  if (total > 0 || found.length > 0) return { outcome: 'vulnerable', found };
  // Nothing found among nothing looked at is no verdict.
  const packages = numbersOf(field(field(report, 'metadata'), 'dependencies')).get('prod') ?? 0;
  if (packages === 0) return { outcome: 'unknown', reason: 'npm looked at no package' };
  return { outcome: 'clean', packages };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function objectOf(value: unknown): object {
  return typeof value === 'object' && value !== null ? value : {};
}

const field = (value: unknown, name: string): unknown => Reflect.get(objectOf(value), name);

function numbersOf(value: unknown): ReadonlyMap<string, number> {
  return new Map(
    Object.entries(objectOf(value)).flatMap(([name, each]) =>
      typeof each === 'number' ? [[name, each] as const] : [],
    ),
  );
}

/** @returns the exit code */
function report(verdict: Verdict, isRequired: boolean): number {
  switch (verdict.outcome) {
    case 'clean':
      console.log(`audit: no known vulnerability in the ${verdict.packages} packages of production`);
      return 0;
    case 'vulnerable':
      console.error(
        `audit: known vulnerabilities in packages of production:\n  ${verdict.found.join('\n  ')}`,
      );
      return 1;
    case 'unknown':
      console.error(
        `audit: NOT CHECKED, because the registry did not say: ${verdict.reason}\n` +
          'audit: this is no clean result; run `npm run audit` where a registry answers, before a release in any case',
      );
      return isRequired ? 1 : 0;
  }
}

if (import.meta.main) {
  // One attempt: who is offline does not wait for three.
  const words = ['audit', '--omit=dev', '--json', '--fetch-retries=0', '--fetch-timeout=20000'];
  process.exitCode = report(verdictOf(npm(words)), process.argv.includes('--required'));
}
