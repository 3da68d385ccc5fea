// `npm run sbom`: the bill of materials of what production installs, as CycloneDX in JSON, by npm itself from the lock file.
// Takes the file to write; without one it goes to stdout.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { npm } from './npm.ts';

const ROOT = new URL('../', import.meta.url);

interface Bill {
  readonly metadata: { readonly component: { readonly 'bom-ref': string; name: string } };
  components: { readonly 'bom-ref': string; properties: { readonly name: string }[] }[];
  dependencies: { readonly ref: string; dependsOn: string[] }[];
}

interface Lock {
  readonly name: string;
  readonly packages: Readonly<
    Record<
      string,
      {
        readonly version?: string;
        readonly dev?: boolean;
        readonly dependencies?: Readonly<Record<string, string>>;
      }
    >
  >;
}

/**
 * npm's own `--omit=dev` leaves out whatever a package of development needs too (yaml, zod, undici), so the lock file says here
 * what belongs to production: all that `npm ci --omit=dev` may install, for any platform.
 * @returns the document
 * @throws Error when npm makes none
 */
export function billOfMaterials(): string {
  const lock: Lock = JSON.parse(readFileSync(new URL('package-lock.json', ROOT), 'utf8'));
  const words = ['sbom', '--package-lock-only', '--sbom-format=cyclonedx', '--sbom-type=application'];
  const { code, stdout, stderr } = npm(words, fileURLToPath(ROOT));
  if (code !== 0) throw new Error(`npm sbom failed: ${stderr || stdout}`);
  const bill: Bill = JSON.parse(stdout);
  const { component } = bill.metadata;
  // npm takes the name of the folder; somebody's checkout may be called anything.
  component.name = lock.name;
  const kept = new Set([component['bom-ref'], ...productionRefs(lock)]);
  bill.components = bill.components.filter((each) => kept.has(each['bom-ref']));
  for (const each of bill.components) {
    each.properties = each.properties.filter(({ name }) => name !== 'cdx:npm:package:development');
  }
  bill.dependencies = bill.dependencies.filter(({ ref }) => kept.has(ref));
  // A package that development names may be there for somebody else in production.
  const own = new Set(Object.keys(lock.packages['']?.dependencies ?? {}));
  for (const each of bill.dependencies) {
    const isOwn = each.ref === component['bom-ref'];
    each.dependsOn = each.dependsOn.filter((ref) => kept.has(ref) && (!isOwn || own.has(nameOf(ref))));
  }
  return `${JSON.stringify(bill, null, 2)}\n`;
}

const nameOf = (ref: string): string => ref.slice(0, ref.lastIndexOf('@'));

/** `NAME@VERSION`, as npm refers to them. */
function productionRefs({ packages }: Lock): readonly string[] {
  return Object.entries(packages).flatMap(([path, { version, dev }]) => {
    const name = path.split('node_modules/').at(-1) ?? '';
    return path === '' || dev === true ? [] : [`${name}@${version ?? ''}`];
  });
}

if (import.meta.main) {
  const [file] = process.argv.slice(2);
  const text = billOfMaterials();
  if (file === undefined) process.stdout.write(text);
  else writeFileSync(file, text);
}
