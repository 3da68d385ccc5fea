// Looks for secrets where none may be: as they are and in the disguises that programs put on them by themselves.
// It works on bytes, so that databases and their logs can be searched like text.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface Secret {
  /** What to call it in a report, which does not show it. */
  readonly name: string;
  readonly text: string;
  /** Characters at the beginning that are no secret: a key is named by its first 8. */
  readonly publicPrefix?: number;
}

export interface Place {
  readonly name: string;
  readonly bytes: Buffer;
}

/** The least part of a secret that is still looked for on its own, in characters. */
const FRAGMENT = 12;

/** Every form of the secret that is looked for, with a word for it. */
export function disguises({ text, publicPrefix = 0 }: Secret): ReadonlyMap<string, string> {
  const bytes = Buffer.from(text);
  const forms = new Map<string, string>();
  const hidden = text.slice(publicPrefix);
  forms.set('as it is', text);
  if (hidden.length >= 2 * FRAGMENT) {
    forms.set('its first half', hidden.slice(0, FRAGMENT));
    forms.set('its second half', hidden.slice(-FRAGMENT));
  }
  forms.set('percent-encoded', encodeURIComponent(text));
  forms.set(
    'percent-encoded throughout',
    bytes.reduce((all, byte) => `${all}%${hex(byte)}`, ''),
  );
  forms.set('as JSON', JSON.stringify(text).slice(1, -1));
  forms.set(
    'escaped as HTML',
    text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`),
  );
  forms.set('in hexadecimal', bytes.toString('hex'));
  forms.set('backwards', [...text].reverse().join(''));
  // Base64 looks different for each of the three places in a group that the secret can begin at. What depends on what
  // stands around it is cut off.
  for (const shift of [0, 1, 2]) {
    const around = Buffer.concat([Buffer.alloc(shift), bytes, Buffer.alloc(2)]);
    const begin = shift === 0 ? 0 : shift + 1;
    const end = Math.floor(((shift + bytes.length) * 8) / 6);
    for (const coding of ['base64', 'base64url'] as const) {
      forms.set(`in ${coding}, shifted by ${shift}`, around.toString(coding).slice(begin, end));
    }
  }
  return forms;
}

/** What was found: `key 3 (in base64, shifted by 1) in the log`. Case counts in base64, nowhere else. */
export function findLeaks(secrets: readonly Secret[], places: readonly Place[]): string[] {
  const searched = places.map(({ name, bytes }) => {
    const text = bytes.toString('latin1');
    return { name, text, lower: text.toLowerCase() };
  });
  const leaks: string[] = [];
  for (const secret of secrets) {
    for (const [form, disguise] of disguises(secret)) {
      const wanted = Buffer.from(disguise).toString('latin1');
      const exact = form.includes('base64');
      for (const { name, text, lower } of searched) {
        if (exact ? text.includes(wanted) : lower.includes(wanted.toLowerCase())) {
          leaks.push(`${secret.name} (${form}) in ${name}`);
        }
      }
    }
  }
  return leaks;
}

/** All files of a directory, its own subdirectories included. */
export async function filesIn(directory: string): Promise<Place[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  return await Promise.all(
    entries
      .filter((entry) => entry.isFile())
      .map(async ({ parentPath, name }) => ({
        name: `file ${name}`,
        bytes: await readFile(join(parentPath, name)),
      })),
  );
}

function hex(byte: number): string {
  return byte.toString(16).padStart(2, '0');
}
