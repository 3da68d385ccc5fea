-- The limits of all scopes of a request in Redis: each operation is one atomic step by the clock of Redis. The process derives
-- which limit rejects, and what clients see, from the returned values (verdict.ts).
--
-- Before this text reserve-script.ts puts the table of limits. For each limit: POSITIONS of its count in a value, and KINDS of
-- what it counts (1 requests, 2 tokens, 3 cost, 4 running requests). For each total (a limit over a day or month), in the order
-- of their fields: TOTAL_KINDS, TOTAL_WINDOWS (1 day, 2 month). And SIZE, the number of fields in a value, and their FORMAT;
-- and functions without loops for what each call does to all totals of each scope.
--
-- KEYS  1  sorted set, the leases of the slot by expiry (ms); a member is ID:BEGUN:TOKENS:COST:TAG=WINDOW,… with BEGUN in µs and,
--          for each of its scopes, the start of the minute window that holds its amounts. TAG is the end of the scope's key.
--       2… for each scope a string of unsigned integers of 64 bits, little-endian:
--          1 start of the minute window (ms), 2 its requests, 3 its tokens; 4 running requests; 5 when counting of totals started
--          (µs); 6 no lease of the slot expires before this time (ms), in the first scope; 7 when the leases were counted last (ms).
--          Then two for each total: its window (the number of the day or month) times 2, plus 1 where usage before is known; and its
--          count, which includes running requests. 0 and 0: not counted. Versions may differ in their totals: a longer value keeps
--          its end, and in a shorter one the rest is 0.
--       For an hour beside a scope, KEY:missed: a hash of what the store knew beyond each total, by its order.
-- ARGV  1  length of the minute window, 2 of a lease (ms), 3 the operation:
--       change  MEMBER TOKENS COST LIMITS [SCOPE KNOWN TOTAL…]…   other amounts for a lease; in its scopes its request and its slot
--               are not checked again. LIMITS: for each scope the number of its limits, then the index and the maximum of each,
--               as doubles. Totals of the store in the order of their fields. KNOWN: 0 they could not be read, 1 they were, or
--               the day of totals that are read anew, which raise what is counted where it is less
--       peek    likewise; reserves nothing
--       batch   SUMS DETAILS MEMBER… MEMBER|ID|''… [ID TOKENS:COST]… [SCOPE KNOWN TOTAL…]…   settles, then reserves.
--               SUMS, as doubles: DAY and MONTH in which all leases of the first MEMBERs began; OTHERS, the number of further settlements;
--               of the leases: their NUMBER, their TOKENS and COST, and the TOKENS and COST that were used; of the reservations: NUMBER
--               TOKENS COST; the number of GROUPS, leases in the same minute windows, and for each group its TOKENS, the TOKENS that were
--               used, and the START of the window in each scope; then LIMITS. Without reservations the answer is 1.
--               DETAILS, as doubles: for each lease the TOKENS and the COST that were used; for each further settlement TOKENS COST
--               REQUESTS MODE AGE RECENT_REQUESTS RECENT_TOKENS; for each reservation TOKENS COST. A settlement releases a lease, by its
--               ID where no reply gave the rest. Without such a lease, by MODE: 1 counts the amounts alone (so do the first), 0 nothing,
--               2 counts as without a lease: REQUESTS and amounts in the totals, the RECENT ones, at most AGE ms old, in the minute
--               window. REQUESTS -1: undo the request of the lease
--       enter   ID TOKENS COST AGE   a running request that was admitted elsewhere AGE ms ago; nothing if it is known
--       renew   MEMBER|ID …
-- The first three return { 3, SCOPE… } where they need totals of the store (settlements are done then), else a digit for each
-- reservation or change (0 refused, 1 admitted, 2 refused, and the lease is kept), the time (ms), BEGUN and TAG=WINDOW,… of new leases, and
-- the value of each scope.
local DAY = 86400000
local HEAD = 7
local LEASES = KEYS[1]
local STEM = string.sub(LEASES, 1, -7)
local floor, max, min = math.floor, math.max, math.min
local windowMs, leaseMs, operation = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

-- Lua concatenates large numbers with an exponent, and Redis takes long to write a number that is an argument of redis.call.
local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function unpackDoubles(packed)
  return { struct.unpack('<' .. string.rep('d', #packed / 8), packed) }
end

-- Of a batch: its SUMS, and three counts of them. A change and a look have none.
local sums, ended, others, reserving = nil, 0, 0, 0
-- The fields of SUMS before the groups, and the arguments before the members.
local SUMS, FIRST = 12, 5
-- The stored values, and parts of the answer.
local raws, verdicts, begun = nil, {}, ''
-- The reservations are done, but not the settlements. `held` has for each lease that ends 1 where it was in the set, which it is no longer.
local isReserved, held = false, nil

-- Runs a batch whose scopes all have a value in the present windows, with room for everything in any order. Nearly all batches are like
-- this, so it comes before the functions for the others: to define these takes as long. New leases are added before others are removed,
-- so that the set does not become empty and keeps its expiry.
-- @return the answer; nil where the rest of the script has to do it, or, with `isReserved`, what remains
local function runAtOnce()
  if others > 0 or sums[1] ~= floor(now / DAY) then return end
  local day, month, count = 2 * sums[1], 2 * sums[2], #KEYS - 1
  local reserved, reservedCost, used, usedCost, tokens, cost = sums[5], sums[6], sums[7], sums[8], sums[10], sums[11]
  local last, width = SUMS + sums[12] * (2 + count), 2 + count
  local all, counted, tags, hasTotals = {}, {}, {}, false
  local at = last + 1
  raws = redis.call('MGET', unpack(KEYS, 2))
  for index = 1, count do
    local raw = raws[index]
    if not raw or #raw < SIZE * 8 then return end
    local values = { struct.unpack(FORMAT, raw) }
    local start, isCounted = values[1], isCurrent(values, day + 1, month + 1)
    if start > now or now - start >= windowMs or not isCounted and not isUncounted(values) then return end
    if reserving > 0 then
      local lastLimit = at + 2 * sums[at]
      for each = at + 1, lastLimit, 2 do
        local field, kind = POSITIONS[sums[each]], KINDS[sums[each]]
        local more = kind == 2 and tokens + used or kind == 3 and cost + usedCost or reserving
        if field > HEAD and not isCounted then return end
        if values[field] + more > sums[each + 1] and (kind ~= 3 or more > 0) then return end
      end
      at = lastLimit + 1
      tags[index] = string.sub(KEYS[index + 1], #STEM + 1) .. '=' .. text(start)
    end
    all[index], counted[index], hasTotals = values, isCounted, hasTotals or isCounted
  end
  if reserving > 0 then
    local earliest, isEmpty, ofAll = all[1][6], all[1][4] == 0, table.concat(tags, ',')
    if now >= earliest or earliest > now + leaseMs then return end
    begun = text(micros)
    local leases, score, middle, rest = {}, text(now + leaseMs), ':' .. begun .. ':', ':' .. ofAll
    for order = 1, reserving do
      local id = FIRST + ended + 2 * order - 1
      leases[2 * order - 1], leases[2 * order] = score, ARGV[id] .. middle .. ARGV[id + 1] .. rest
    end
    redis.call('ZADD', LEASES, unpack(leases))
    -- As in addLeases, with the longest rest that a month can have.
    local life = hasTotals and 32 * DAY or leaseMs * 2
    if isEmpty or now - all[1][1] >= life - leaseMs then redis.call('PEXPIRE', LEASES, text(life)) end
    begun, verdicts[1] = begun .. ' ' .. ofAll, string.rep('1', reserving)
  end
  local found, isFound = 0, {}
  for order = 1, ended do
    isFound[order] = redis.call('ZREM', LEASES, ARGV[FIRST + order])
    found = found + isFound[order]
  end
  local answer = { verdicts[1], now, begun }
  for index = 1, count do
    local values, isCounted = all[index], counted[index]
    values[2], values[3], values[4] = values[2] + reserving, values[3] + tokens, values[4] + reserving
    if isCounted then addToTotals(values, reserving, tokens, cost) end
    if found == ended then
      for group = SUMS + 1, last, width do
        if sums[group + 1 + index] == values[1] then values[3] = max(0, values[3] - sums[group]) + sums[group + 1] end
      end
      values[4] = max(0, values[4] - ended)
      if isCounted then
        takeFromTotals(values, day, month, reserved, reservedCost)
        addToTotals(values, 0, used, usedCost)
      end
    end
    local value = struct.pack(FORMAT, unpack(values, 1, SIZE))
    redis.call('SETRANGE', KEYS[index + 1], '0', value)
    answer[3 + index] = value
  end
  if found == ended then return reserving > 0 and answer or 1 end
  held, isReserved = isFound, true
end

if operation == 'batch' then
  sums = unpackDoubles(ARGV[4])
  others, ended, reserving = sums[3], sums[4], sums[9]
  local answer = runAtOnce()
  if answer then return answer end
end

-- The lease with this id, where its other parts are unknown: only after a reply that did not come.
local function find(member)
  if member == '' or string.find(member, ':', 1, true) then return member end
  for _, each in ipairs(redis.call('ZRANGE', LEASES, 0, -1)) do
    if string.sub(each, 1, #member + 1) == member .. ':' then return each end
  end
  return member
end

if operation == 'renew' then
  local renewed = 0
  for index = 4, #ARGV do
    renewed = renewed + redis.call('ZADD', LEASES, 'XX', 'CH', now + leaseMs, find(ARGV[index]))
  end
  if redis.call('PTTL', LEASES) < leaseMs * 2 then redis.call('PEXPIRE', LEASES, leaseMs * 2) end
  return renewed
end

-- The civil month and day of month of a day since 1970, by eras of 400 years that start in March. Months count from year 0.
local function civil(day)
  local shifted = day + 719468
  local era = floor(shifted / 146097)
  local dayOfEra = shifted - era * 146097
  local yearOfEra = floor(
    (dayOfEra - floor(dayOfEra / 1460) + floor(dayOfEra / 36524) - floor(dayOfEra / 146096)) / 365
  )
  local dayOfYear = dayOfEra - (365 * yearOfEra + floor(yearOfEra / 4) - floor(yearOfEra / 100))
  local march = floor((5 * dayOfYear + 2) / 153)
  -- Years times 12 plus months, which run on from March, being 2.
  return (yearOfEra + era * 400) * 12 + march + 2, dayOfYear - floor((153 * march + 2) / 5) + 1
end

local day = floor(now / DAY)
local month, dayOfMonth = civil(day)
local current = { day, month }
-- At least the rest of the month and one day more.
local monthMs = (33 - dayOfMonth) * DAY

local function number(digits)
  local value = tonumber(digits or '')
  return value and value <= 1e17 and value or 0
end

-- What a lease holds in all of its scopes.
local LEASE = '^[^:]*:(%d+):(%d+):(%d+):(.*)$'
local function readLease(member)
  local begun, tokens, cost, tags = string.match(member, LEASE)
  begun = number(begun)
  local leaseDay = floor(begun / 1000 / DAY)
  -- The windows of its scopes, by their tags.
  local windows, size = {}, 0
  for tag, start in string.gmatch(tags or '', '([^=,]+)=(%d+)') do
    windows[tag], size = number(start), size + 1
  end
  return {
    begun = begun,
    amounts = { 1, number(tokens), number(cost), 1 },
    windows = windows,
    size = size,
    dates = { leaseDay, leaseDay == day and month or (civil(leaseDay)) },
  }
end

-- What a lease adds to a total of the present windows.
local function amount(lease, order)
  if lease.dates[TOTAL_WINDOWS[order]] ~= current[TOTAL_WINDOWS[order]] then return 0 end
  return lease.amounts[TOTAL_KINDS[order]]
end

-- What running requests of a scope add to each of the totals, and their number.
local function running(tag)
  local sums, slots = {}, 0
  for order = 1, #TOTAL_KINDS do sums[order] = 0 end
  for _, member in ipairs(redis.call('ZRANGE', LEASES, 0, -1)) do
    local lease = readLease(member)
    if lease.windows[tag] then
      slots = slots + 1
      for order = 1, #TOTAL_KINDS do sums[order] = sums[order] + amount(lease, order) end
    end
  end
  return sums, slots
end

-- Scopes by their position in KEYS, less one. `hasTotals`: they are counted; `isKnown`: with what was used before; `isNew`: its
-- expiry has to be set; `isChanged`: it has to be written.
local scopes = {}
-- What the fields of the present windows are, where all is known.
local present = {}
for order = 1, #TOTAL_KINDS do present[order] = current[TOTAL_WINDOWS[order]] * 2 + 1 end

-- @return the fields of a value, and how many bytes it is too short; nil for what is none. MGET says so of other types, too
local function unpacked(raw)
  if not raw or #raw < HEAD * 8 or #raw % 8 ~= 0 then return end
  local rest = SIZE * 8 - #raw
  return { struct.unpack(FORMAT, rest > 0 and raw .. string.rep('\0', rest) or raw) }, rest
end

local function read(index, raw)
  local key = KEYS[index + 1]
  local scope = { key = key, tag = string.sub(key, #STEM + 1), tail = '', values = 0, hasTotals = true, isKnown = true, isNew = false, isChanged = false }
  local values, rest = unpacked(raw)
  if values then
    if rest < 0 then scope.tail = string.sub(raw, SIZE * 8 + 1) end
  else
    values, scope.isNew = {}, true
    for field = 1, SIZE do values[field] = 0 end
    -- Its leases may have outlived it.
    local _, slots = running(scope.tag)
    values[4], values[7] = slots, now
  end
  scope.values = values
  -- The clock was set back. The window must not last for longer than a window.
  if values[1] > now then
    values[1], scope.isNew, scope.isChanged = now, true, true
  end
  if now - values[1] >= windowMs then values[1], values[2], values[3] = 0, 0, 0 end
  if isCurrent(values, current[1] * 2 + 1, current[2] * 2 + 1) then return scope end
  local hasTotals, isKnown, isStale = false, true, false
  for order = 1, #present do
    local stored = values[HEAD + 2 * order - 1]
    local isOdd = stored % 2
    -- In terms of known totals.
    local held = stored - isOdd + 1
    if stored > 0 then hasTotals = true end
    if isOdd == 0 then isKnown = false end
    if held ~= present[order] then isStale = true end
    -- The clock was set back: the totals of the earlier date are gone.
    if held > present[order] then hasTotals = false break end
  end
  if not hasTotals then
    for field = HEAD + 1, SIZE do values[field] = 0 end
  elseif isStale then
    local sums = running(scope.tag)
    for order = 1, #present do
      local field = HEAD + 2 * order
      local isOdd = values[field - 1] % 2
      if values[field - 1] - isOdd + 1 ~= present[order] then
        values[field - 1], values[field] = present[order] - 1 + isOdd, sums[order]
      end
    end
  end
  scope.hasTotals, scope.isKnown = hasTotals, hasTotals and isKnown
  return scope
end

local function packed(values)
  return struct.pack(FORMAT, unpack(values, 1, SIZE))
end

-- @return the value without its tail
local function write(scope)
  local value = packed(scope.values)
  if scope.isNew then
    redis.call('SET', scope.key, value .. scope.tail, 'PX', scope.hasTotals and monthMs or max(windowMs, leaseMs * 2))
    scope.isNew = false
  else
    -- Neither its end nor its expiry changes.
    redis.call('SETRANGE', scope.key, '0', value)
  end
  scope.isChanged = false
  return value
end

if not raws or isReserved then raws = redis.call('MGET', unpack(KEYS, 2)) end
for index = 1, #KEYS - 1 do scopes[index] = read(index, raws[index]) end

-- Counts in the open minute window, or opens one that began at `start`.
local function count(scope, start, amounts, requests)
  local values = scope.values
  if values[1] == 0 then
    values[1], scope.isNew = start, true
  end
  values[2], values[3] = values[2] + requests, values[3] + amounts[2]
end

-- @param amounts of each kind, the requests first
local function addTotals(scope, amounts)
  if scope.hasTotals then addToTotals(scope.values, amounts[1], amounts[2], amounts[3]) end
end

-- Takes the amounts of a lease out of the windows that hold them.
local function subtract(values, lease, window)
  if values[1] > 0 and window == values[1] then values[3] = max(0, values[3] - lease.amounts[2]) end
  takeFromTotals(values, lease.dates[1] * 2, lease.dates[2] * 2, lease.amounts[2], lease.amounts[3])
end

-- Undoes all but the request of a lease, in its scopes but those of this call with `isKept`.
local function undo(lease, isKept)
  for tag, start in pairs(lease.windows) do
    local found
    for index = 1, #scopes do
      if scopes[index].tag == tag then found = scopes[index] end
    end
    if found and not isKept then
      subtract(found.values, lease, start)
      found.values[4], found.isChanged = max(0, found.values[4] - 1), true
    elseif not found then
      local key = STEM .. tag
      local values = unpacked(redis.call('MGET', key)[1])
      if values then
        subtract(values, lease, start)
        values[4] = max(0, values[4] - 1)
        redis.call('SETRANGE', key, '0', packed(values))
      end
    end
  end
end

-- Whether Redis was emptied while a lease ran, which the totals do not count then.
local function isOlder(scope, lease)
  return scope.hasTotals and lease.begun < scope.values[5]
end

-- @param times 1, or -1 to undo it
local function addRequest(values, lease, times)
  for order = 1, #TOTAL_KINDS do
    local field = HEAD + 2 * order
    if TOTAL_KINDS[order] == 1 then values[field] = max(0, values[field] + times * amount(lease, order)) end
  end
end

-- What a lease that begins now says of its scopes. @param start of a minute window, where none is open
local function tagsOf(start)
  local tags = {}
  for index = 1, #scopes do
    local opened = scopes[index].values[1]
    tags[index] = string.format('%s=%.0f', scopes[index].tag, opened > 0 and opened or start)
  end
  return table.concat(tags, ',')
end

local function memberOf(id, tokens, cost, begun, tags)
  return string.format('%s:%.0f:%.0f:%.0f:%s', id, begun, tokens, cost, tags)
end

-- @param leases score and member of each
-- @param others running requests of the first scope. While there are some, the set has its expiry since the window began at the latest
local function addLeases(leases, others)
  redis.call('ZADD', LEASES, unpack(leases))
  local life, isNew = leaseMs * 2, others == 0
  for index = 1, #scopes do
    isNew = isNew or scopes[index].isNew
    -- While there are totals, what an expired lease holds of them must still be subtracted.
    if scopes[index].hasTotals then life = max(life, monthMs) end
  end
  if isNew or now - scopes[1].values[1] >= life - leaseMs then redis.call('PEXPIRE', LEASES, life) end
end

-- What the store knew and Redis did not, and when: it may still arrive from a replica that was cut off before. The next look at the store
-- corrects what did not.
local MISSED = ':missed'
local MISSED_MS = 3600000

-- @return at least `counted`: what the store knows of a total
local function raised(scope, order, counted, before)
  if before <= counted then return counted end
  redis.call('HINCRBY', scope.key .. MISSED, order, text(before - counted))
  redis.call('HSET', scope.key .. MISSED, 'at', now)
  redis.call('PEXPIRE', scope.key .. MISSED, MISSED_MS)
  scope.isChanged = true
  return before
end

-- Takes off what is counted already, because the store knew it. @param amounts of each kind that came late, began in milliseconds
local function takeMissed(scope, amounts, began)
  if began >= number(redis.call('HGET', scope.key .. MISSED, 'at')) then return end
  for order = 1, #TOTAL_KINDS do
    local amount = amounts[TOTAL_KINDS[order]]
    local known = amount > 0 and min(amount, number(redis.call('HGET', scope.key .. MISSED, order))) or 0
    if known > 0 then
      local field = HEAD + 2 * order
      scope.values[field] = scope.values[field] - known
      redis.call('HINCRBY', scope.key .. MISSED, order, text(-known))
    end
  end
end

local function settle(member, isHeld, amounts, requests, mode, age, recent, recentRequests)
  if not isHeld and mode == 2 then
    amounts[1] = requests
    for index = 1, #scopes do
      local scope = scopes[index]
      if age < windowMs then count(scope, now - age, recent, recentRequests) end
      addTotals(scope, amounts)
      if scope.hasTotals then takeMissed(scope, amounts, now - age) end
      if age < windowMs or scope.hasTotals then scope.isChanged = true end
    end
    return
  end
  local lease = readLease(member)
  for index, scope in ipairs(scopes) do
    local values, window = scope.values, lease.windows[scope.tag]
    local isIn = isHeld and window ~= nil
    if isIn then
      subtract(values, lease, window)
      values[4] = max(0, values[4] - 1)
    end
    if values[1] > 0 and window == values[1] then
      values[3] = values[3] + amounts[2]
      if isIn and requests < 0 then values[2] = max(0, values[2] + requests) end
    end
    if scope.hasTotals then
      addTotals(scope, amounts)
      if isIn and requests < 0 then addRequest(values, lease, -1) end
      -- Redis was emptied meanwhile, and the store did not know a request that ran.
      if not isHeld and isOlder(scope, lease) then addRequest(values, lease, 1) end
      -- Its lease has counted the request.
      if age then takeMissed(scope, { isIn and requests >= 0 and 1 or 0, amounts[2], amounts[3] }, now - age) end
    end
    if raws[index] then scope.isChanged = true end
  end
  if isHeld and lease.size > #scopes then undo(lease, true) end
end

local details = sums and unpackDoubles(ARGV[5]) or {}

local function isReleased(member)
  return member ~= '' and redis.call('ZREM', LEASES, member) == 1
end

-- Settles what has ended, one after the other.
local function settleAll()
  for order = 1, ended do
    local member = ARGV[FIRST + order]
    local isHeld
    if held then isHeld = held[order] == 1 else isHeld = isReleased(member) end
    settle(member, isHeld, { 0, details[2 * order - 1], details[2 * order], 1 }, 0, 1)
  end
  for order = 1, others do
    local at, member = 2 * ended + 7 * (order - 1), find(ARGV[FIRST + ended + order])
    local isHeld, mode = isReleased(member), details[at + 4]
    if isHeld or mode ~= 0 then
      local amounts, recent = { 0, details[at + 1], details[at + 2], 1 }, { 1, details[at + 7] }
      settle(member, isHeld, amounts, details[at + 3], mode, details[at + 5], recent, details[at + 6])
    end
  end
end

if operation == 'enter' then
  local id, age = ARGV[4], tonumber(ARGV[7])
  local amounts = { 1, tonumber(ARGV[5]), tonumber(ARGV[6]), 1 }
  local member = find(id)
  if member ~= id then
    redis.call('ZADD', LEASES, now + leaseMs, member)
    return member
  end
  member = memberOf(id, amounts[2], amounts[3], micros - age * 1000, tagsOf(now - age))
  addLeases({ now + leaseMs, member }, 0)
  local lease = readLease(member)
  for _, scope in ipairs(scopes) do
    if age < windowMs then count(scope, now - age, amounts, 1) end
    for order = 1, scope.hasTotals and #TOTAL_KINDS or 0 do
      scope.values[HEAD + 2 * order] = scope.values[HEAD + 2 * order] + amount(lease, order)
    end
    scope.values[4] = scope.values[4] + 1
    write(scope)
  end
  return member
end

if operation == 'batch' and (reserving == 0 or isReserved) then
  settleAll()
  if reserving == 0 then
    for index = 1, #scopes do
      if scopes[index].isChanged then write(scopes[index]) end
    end
    return 1
  end
end

-- Leases whose process is gone. Those that expire later than a lease can were made before the clock was set back.
local earliest = scopes[1].values[6]
if now >= earliest or earliest > now + leaseMs then
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, 1000)) do
    redis.call('ZREM', LEASES, member)
    undo(readLease(member))
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '(' .. text(now + leaseMs), '+inf', 'LIMIT', 0, 1000)) do
    redis.call('ZADD', LEASES, now + leaseMs, member)
  end
  local first = redis.call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')
  local score = floor(number(first[2]))
  scopes[1].values[6] = score > 0 and score or now + leaseMs
end

-- Totals of the store. What was settled since may not have reached it, and what runs has not.
for start = sums and FIRST + ended + others + 2 * reserving + 1 or 8, #ARGV, 2 + #TOTAL_KINDS do
  local scope, given = scopes[tonumber(ARGV[start])], tonumber(ARGV[start + 1])
  local known = given == 1
  if given > 1 then
    local values, reserved = scope.values, running(scope.tag)
    for order = 1, scope.hasTotals and given == day and #TOTAL_KINDS or 0 do
      local field, before = HEAD + 2 * order, tonumber(ARGV[start + 1 + order])
      values[field] = raised(scope, order, values[field] - reserved[order], before) + reserved[order]
    end
  elseif not scope.hasTotals or (not scope.isKnown and known) then
    local values, reserved = scope.values, running(scope.tag)
    if not scope.hasTotals then values[5] = micros end
    for order = 1, #TOTAL_KINDS do
      local field, before = HEAD + 2 * order, tonumber(ARGV[start + 1 + order])
      local settled = scope.hasTotals and values[field] - reserved[order] or 0
      values[field - 1] = current[TOTAL_WINDOWS[order]] * 2 + (known and 1 or 0)
      values[field] = raised(scope, order, settled, before) + reserved[order]
    end
    scope.hasTotals, scope.isKnown, scope.isNew, scope.isChanged = true, known, true, true
  end
end

-- The lease that is to be changed, as far as it still exists: its request and its slot are counted already.
local id = operation == 'change' and find(ARGV[4]) or ''
local old = operation == 'change' and readLease(id) or nil
local isHeld = old and redis.call('ZSCORE', LEASES, id) or false
local oldWindows = {}
for index = 1, old and #scopes or 0 do
  -- One that is known by its id alone, and is gone, was in all of them.
  oldWindows[index] = old.size == 0 and 0 or old.windows[scopes[index].tag] or false
end

local limits = sums or unpackDoubles(ARGV[7])
local firstLimit = sums and SUMS + sums[12] * (2 + #scopes) + 1 or 1

-- The scopes whose totals have to be read first.
local missing, at = { 3 }, firstLimit
for index = 1, #scopes do
  local last = at + 2 * limits[at]
  for each = at + 1, scopes[index].hasTotals and 0 or last, 2 do
    if POSITIONS[limits[each]] > HEAD then
      missing[#missing + 1] = index
      break
    end
  end
  at = last + 1
end

-- Whether a request fits in all scopes.
local function fits(tokens, cost)
  local isFit, at = true, firstLimit
  for index = 1, #scopes do
    local scope = scopes[index]
    local values, window = scope.values, isHeld and oldWindows[index]
    local last = at + 2 * limits[at]
    for each = at + 1, last, 2 do
      local maximum = limits[each + 1]
      local field, kind = POSITIONS[limits[each]], KINDS[limits[each]]
      if kind == 2 or kind == 3 then
        local more = kind == 2 and tokens or cost
        if more > 0 or kind == 2 then
          if window and field > HEAD then
            more = more - amount(old, (field - HEAD) / 2)
          elseif window and window == values[1] then
            more = more - old.amounts[2]
          end
          if values[field] + more > maximum then isFit = false end
        end
      elseif not (old and oldWindows[index]) and values[field] + 1 > maximum then
        -- Leases that were lost with the sorted set are not counted for longer.
        if kind == 4 and (now - values[7] >= leaseMs or values[7] > now) then
          local _, slots = running(scope.tag)
          values[4], values[7], scope.isChanged = slots, now, true
        end
        if values[field] + 1 > maximum then isFit = false end
      end
    end
    at = last + 1
  end
  return isFit
end

local function reserve(tokens, cost)
  for index = 1, #scopes do
    local scope = scopes[index]
    local values, wasIn, window = scope.values, old and oldWindows[index], isHeld and oldWindows[index]
    if window then subtract(values, old, window) end
    -- Where a lease that is to be changed has expired, its request runs all the same, and takes a slot again.
    if not window then values[4] = values[4] + 1 end
    if values[1] == 0 then values[1], scope.isNew = now, true end
    values[2], values[3] = values[2] + (wasIn and 0 or 1), values[3] + tokens
    if scope.hasTotals then
      addToTotals(values, (not wasIn or not isHeld and isOlder(scope, old)) and 1 or 0, tokens, cost)
    end
    scope.isChanged = true
  end
end

-- @param requests ID, TOKENS and COST of each; they are reserved already
-- @param others see addLeases
local function admit(requests, others)
  if #requests == 0 then return end
  local tags, leases = tagsOf(0), {}
  begun = text(micros) .. ' ' .. tags
  for order = 1, #requests do
    local request = requests[order]
    leases[2 * order - 1], leases[2 * order] = text(now + leaseMs), memberOf(request[1], request[2], request[3], micros, tags)
  end
  addLeases(leases, others)
end

local function change(tokens, cost)
  verdicts[1] = isHeld and 2 or 0
  if not fits(tokens, cost) then return end
  verdicts[1] = 1
  reserve(tokens, cost)
  if isHeld then
    redis.call('ZREM', LEASES, id)
    undo(old, true)
  end
  admit({ { string.match(id, '^[^:]*'), tokens, cost } }, 0)
end

local function reserveAll()
  settleAll()
  if #missing > 1 then return end
  local admitted, before = {}, scopes[1].values[4]
  for order = 1, reserving do
    local at = 2 * ended + 7 * others + 2 * order
    local tokens, cost = details[at - 1], details[at]
    local isAdmitted = fits(tokens, cost)
    verdicts[order] = isAdmitted and 1 or 0
    if isAdmitted then
      reserve(tokens, cost)
      admitted[#admitted + 1] = { ARGV[FIRST + ended + others + 2 * order - 1], tokens, cost }
    end
  end
  admit(admitted, before)
end

if reserving > 0 and not isReserved then
  reserveAll()
elseif operation == 'change' and #missing == 1 then
  change(tonumber(ARGV[5]), tonumber(ARGV[6]))
end

-- The values as they are stored: one string for each scope is cheaper than an integer for each count.
local answer = { table.concat(verdicts), now, begun }
for index = 1, #scopes do
  local scope = scopes[index]
  answer[index + 3] = scope.isChanged and write(scope) or packed(scope.values)
end
return #missing > 1 and missing or answer
