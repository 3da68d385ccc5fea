// Records of stored responses: written once, found by id, settled once, deleted by age.
import { describe, expect, test } from 'vitest';
import type { StoredResponse } from '../../src/store/response-record.ts';
import type { Store } from '../../src/store/store.ts';
import { STORE_KINDS, storeForEachTest } from './stores.ts';

const response = (more: Partial<StoredResponse> = {}): StoredResponse => ({
  id: 'resp_1',
  holderId: 'holder_1',
  model: 'public',
  upstream: 'up',
  upstreamModel: 'there',
  createdAt: '2040-01-01T00:00:00.000Z',
  charged: null,
  ...more,
});

describe.each(STORE_KINDS)('in $name', (kind) => {
  let store: Store;
  storeForEachTest(kind, (opened) => {
    store = opened;
  });

  test('a record is found unchanged until it is removed', async () => {
    const { responses } = store;
    expect(await responses.findResponse('resp_1')).toBeUndefined();
    await responses.addResponse(response({ charged: 2 ** 40 }));
    expect(await responses.findResponse('resp_1')).toEqual(response({ charged: 2 ** 40 }));
    await responses.removeResponse('resp_1');
    expect(await responses.findResponse('resp_1')).toBeUndefined();
  });

  test('a second record of an id does not change the first', async () => {
    const { responses } = store;
    await responses.addResponse(response());
    await responses.addResponse(response({ holderId: 'holder_2', upstream: 'other' }));
    expect(await responses.findResponse('resp_1')).toEqual(response());
  });

  test('of many concurrent settlements exactly one succeeds, and none after it', async () => {
    const { responses } = store;
    await responses.addResponse(response({ charged: 0 }));
    const settled = await Promise.all(Array.from({ length: 8 }, () => responses.settleResponse('resp_1')));
    expect(settled.filter((each) => each)).toHaveLength(1);
    expect((await responses.findResponse('resp_1'))?.charged).toBeNull();
    expect(await responses.settleResponse('no')).toBe(false);
  });

  test('the oldest are deleted first, at most the given number', async () => {
    const { responses } = store;
    for (const day of [3, 1, 2, 4])
      await responses.addResponse(
        response({ id: `resp_${day}`, createdAt: `2040-01-0${day}T00:00:00.000Z` }),
      );
    expect(await responses.forgetResponses('2040-01-04T00:00:00.000Z', 2)).toBe(2);
    expect(await responses.findResponse('resp_2')).toBeUndefined();
    expect(await responses.findResponse('resp_3')).toBeDefined();
    expect(await responses.forgetResponses('2040-01-04T00:00:00.000Z', 2)).toBe(1);
    expect(await responses.findResponse('resp_4')).toBeDefined();
  });
});
