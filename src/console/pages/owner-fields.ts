// Fields of the forms that change keys, holders and teams, filled with what a record has.
import { quotedWord } from './form-body.ts';
import { type Field, field, member } from './record-view.ts';

const LIMITS_HINT = 'such as requests_per_minute=100 tokens_per_day=none';
/** When a key ends. */
const EXPIRY_HINT = 'such as 90d or 2030-01-31; empty: never';
/** What an empty field of limits means for a holder. */
export const OF_HOLDER = 'empty: as the tier has';
/** Limits of keys and teams are their own: one ends by a word, and an empty field is an error. */
export const OF_ITS_OWN = 'NAME=none ends one';

/** Fields of limits, budget and restrictions as they are. @param removal how a limit ends */
export function termsInputs(record: object, removal: typeof OF_HOLDER | typeof OF_ITS_OWN): readonly Field[] {
  const pairs = (name: string) =>
    Object.entries(member(record, name) ?? {})
      .flatMap(([each, value]) => (each === 'soft' ? [] : [`${each}=${value}`]))
      .join(' ');
  const words = (name: string) => {
    const list: unknown = member(record, name);
    return Array.isArray(list) ? list.map((word) => quotedWord(String(word))).join(' ') : '';
  };
  const restrictions = Object.hasOwn(record, 'models')
    ? [
        field('list.models', 'Models', 'empty: all of the tier', words('models')),
        field('list.endpoints', 'Endpoints', 'empty: all', words('endpoints')),
      ]
    : [];
  return [
    field('map.limits', 'Limits', `${LIMITS_HINT}; ${removal}`, pairs('limits')),
    field('map.budget', 'Budget', `such as per_month=100; ${removal}`, pairs('budget')),
    ...restrictions,
  ];
}

export function labelsField(record: object): Field {
  const labels = Object.entries(member(record, 'labels') ?? {}).map(
    ([name, value]) => `${name}=${quotedWord(String(value))}`,
  );
  const hint = 'NAME=VALUE, separated by spaces; a VALUE with spaces in double quotes; empty: none';
  return field('map.labels', 'Labels', hint, labels.join(' '));
}

export const nameField = (record: object) =>
  field('null.name', 'Name', 'empty: none', String(member(record, 'name') ?? ''));
export const teamField = (record: object) =>
  field('null.team', 'Team', 'empty: none', String(member(record, 'team') ?? ''));
export const expiryField = (value: string) => field('null.expires', 'Expires', EXPIRY_HINT, value);
export const OF_NEW_KEY: readonly Field[] = [
  field('text.name', 'Name of the key', 'empty: none'),
  field('text.expires', 'Expires', EXPIRY_HINT),
];
export const OF_NEW_HOLDER: readonly Field[] = [
  field('text.holder', 'Name of the new holder', 'empty: none'),
  field('text.team', 'Team', 'empty: none'),
];
export const FORCE: Field = { name: 'flag.force', label: 'Allow more than the tier has', type: 'checkbox' };
export const TERMS_REMOVED = { limits: 'tier', budget: 'tier' } as const;
