-- The limits of one holder in Redis: each operation is one atomic step by the clock of Redis. The process derives which limit
-- rejects, and what clients see, from the returned counts (verdict.ts).
--
-- Before this text reserve-script.ts puts the table of limits: WINDOWS and COUNTS of each limit, TOTALS (indexes of the limits
-- over a day or month), FIELDS (two for each total).
--
-- KEYS  1  hash, the minute window: s its start (ms), r requests, t tokens
--       2  hash, totals: for each its window (the number of the day or month) and its count, which includes running requests;
--          e when counting started (µs), k whether usage before that is known (1) or not yet (0). Versions may differ in their
--          totals: where one is not known yet, its window is negative, but for those of all versions (one letter).
--       3  sorted set, leases by expiry (ms); a member is ID:WINDOW:TOKENS:BEGUN, the last in µs. While there are totals, they
--          count the request, or the tokens, of each lease that began in their window.
-- ARGV  1  length of the minute window, 2 of a lease (ms), 3 the operation:
--       reserve ID TOKENS LIMIT… [KNOWN TOTAL…]   limits in the order of the table, -1: none; totals in that of TOTALS
--       change  MEMBER, then likewise: other tokens for a lease; its request and its slot are not checked again
--       peek    likewise; reserves nothing
--       enter   ID TOKENS AGE   a running request that was admitted elsewhere AGE ms ago; nothing if it is known
--       settle  MEMBER|ID|'' TOKENS REQUESTS MODE AGE RECENT_REQUESTS RECENT_TOKENS
--               releases a lease, by its ID where no reply gave the rest. Without such a lease, by MODE: 'real' counts the
--               tokens alone, 'none' nothing, 'use' counts as without a lease: REQUESTS and TOKENS in the totals, the RECENT
--               ones, at most AGE ms old, in the minute window. REQUESTS -1: undo the request of the lease.
--       renew   MEMBER|ID …
local DAY = 86400000
local windowMs, leaseMs, operation = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

-- Lua concatenates large numbers with an exponent. Arguments of redis.call need no text: Redis writes 17 digits.
local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- The lease with this id, where its other parts are unknown: only after a reply that did not come.
local function find(member)
  if member == '' or string.find(member, ':', 1, true) then return member end
  for _, each in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    if string.sub(each, 1, #member + 1) == member .. ':' then return each end
  end
  return member
end

if operation == 'renew' then
  local renewed = 0
  for index = 4, #ARGV do
    renewed = renewed + redis.call('ZADD', KEYS[3], 'XX', 'CH', now + leaseMs, find(ARGV[index]))
  end
  if redis.call('PTTL', KEYS[3]) < leaseMs * 2 then redis.call('PEXPIRE', KEYS[3], leaseMs * 2) end
  return renewed
end

-- The civil month and day of month of a day since 1970, by eras of 400 years that start in March. Months count from year 0.
local function civil(day)
  local shifted = day + 719468
  local era = math.floor(shifted / 146097)
  local dayOfEra = shifted - era * 146097
  local yearOfEra = math.floor(
    (dayOfEra - math.floor(dayOfEra / 1460) + math.floor(dayOfEra / 36524) - math.floor(dayOfEra / 146096)) / 365
  )
  local dayOfYear = dayOfEra - (365 * yearOfEra + math.floor(yearOfEra / 4) - math.floor(yearOfEra / 100))
  local march = math.floor((5 * dayOfYear + 2) / 153)
  -- Years times 12 plus months, which run on from March, being 2.
  return (yearOfEra + era * 400) * 12 + march + 2, dayOfYear - math.floor((153 * march + 2) / 5) + 1
end

local day = math.floor(now / DAY)
local month, dayOfMonth = civil(day)
local current = { day = day, month = month }

-- A field that is missing or no count is 0. No real count is as large as the bound.
local function count(value)
  local number = tonumber(value or '')
  if number == nil or number ~= number or number < 0 or number > 1e17 then return 0 end
  return number
end

local function readLease(member)
  local window, tokens, begun = string.match(member, '^[^:]*:(%d+):(%d+):(%d+)$')
  local leaseDay = math.floor(count(begun) / 1000 / DAY)
  return {
    window = count(window),
    tokens = count(tokens),
    begun = count(begun),
    day = leaseDay,
    month = leaseDay == day and month or (civil(leaseDay)),
  }
end

-- What a lease adds to a total of the present windows.
local function amount(lease, index)
  if lease[WINDOWS[index]] ~= current[WINDOWS[index]] then return 0 end
  return COUNTS[index] == 'tokens' and lease.tokens or 1
end

-- What running requests add to each of the totals.
local function running()
  local sums = {}
  for _, index in ipairs(TOTALS) do sums[index] = 0 end
  for _, member in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    local lease = readLease(member)
    for _, index in ipairs(TOTALS) do sums[index] = sums[index] + amount(lease, index) end
  end
  return sums
end

local held = redis.call('HMGET', KEYS[1], 's', 'r', 't')
local window = { start = count(held[1]), requests = count(held[2]), tokens = count(held[3]) }

local function keepWindow()
  redis.call('HSET', KEYS[1], 's', window.start, 'r', window.requests, 't', window.tokens)
end

-- The clock was set back. The window must not last for longer than a window.
if window.start > now then
  window.start = now
  keepWindow()
  redis.call('PEXPIRE', KEYS[1], windowMs)
end
if now - window.start >= windowMs then window = { start = 0, requests = 0, tokens = 0 } end

held = redis.call('HMGET', KEYS[2], 'k', unpack(FIELDS))
local totals
local isKept, isStale, isKnown, windows = false, false, held[1] == '1', {}
for order = 1, #TOTALS do
  local stored, now = tonumber(held[2 * order] or ''), current[WINDOWS[TOTALS[order]]]
  if stored then
    isKept, windows[order] = true, math.abs(stored)
    -- The clock was set back: the totals of the earlier date are gone.
    if windows[order] > now then isKept = false break end
  end
  isKnown = isKnown and (stored or 0) > 0
  isStale = isStale or windows[order] ~= now
end
if isKept then
  totals = { known = isKnown, isStored = not isStale }
  local reserved = isStale and running()
  for order = 1, #TOTALS do
    local index = TOTALS[order]
    local isCurrent = windows[order] == current[WINDOWS[index]]
    totals[index] = isCurrent and count(held[1 + 2 * order]) or reserved[index]
  end
end

-- At least the rest of the month and one day more.
local monthMs = (33 - dayOfMonth) * DAY

local function keepTotals()
  if not totals then return end
  local fields = {}
  for order = 1, #TOTALS do
    fields[2 * order - 1], fields[2 * order] = FIELDS[2 * order], totals[TOTALS[order]]
  end
  local isNew = not totals.isStored
  totals.isStored = true
  for order = 1, isNew and #TOTALS or 0 do
    local name, now = FIELDS[2 * order - 1], current[WINDOWS[TOTALS[order]]]
    fields[#fields + 1], fields[#fields + 2] = name, (totals.known or #name == 1) and now or -now
  end
  redis.call('HSET', KEYS[2], unpack(fields))
  if isNew then redis.call('PEXPIRE', KEYS[2], monthMs) end
end

-- Whether Redis was emptied while a lease ran, which the totals do not count then.
local function isOlder(lease)
  return totals and lease.begun < count(redis.call('HGET', KEYS[2], 'e'))
end

local function addTotals(requests, tokens)
  if not totals then return end
  for _, index in ipairs(TOTALS) do
    totals[index] = math.max(0, totals[index] + (COUNTS[index] == 'tokens' and tokens or requests))
  end
  keepTotals()
end

-- Counts in the open minute window, or opens one that began at `start`.
local function countInWindow(start, requests, tokens)
  if window.start == 0 then window.start = start end
  window.requests, window.tokens = window.requests + requests, window.tokens + tokens
  keepWindow()
  -- Its fields say when it ends; the expiry only removes it.
  redis.call('PEXPIRE', KEYS[1], windowMs)
end

-- Replaces the tokens of a lease.
local function replace(lease, tokens, isHeld)
  local reserved = isHeld and lease.tokens or 0
  if window.start > 0 and lease.window == window.start then
    window.tokens = math.max(0, window.tokens - reserved + tokens)
    keepWindow()
  end
  if not totals then return end
  for _, index in ipairs(TOTALS) do
    if COUNTS[index] == 'tokens' then
      totals[index] = math.max(0, totals[index] - (isHeld and amount(lease, index) or 0) + tokens)
    end
  end
end

-- @param start of its minute window, if none is open
local function addLease(id, tokens, begun, start)
  if window.start == 0 then window.start = start end
  local member = id .. ':' .. text(window.start) .. ':' .. text(tokens) .. ':' .. text(begun)
  redis.call('ZADD', KEYS[3], now + leaseMs, member)
  -- While there are totals, what an expired lease holds of them must still be subtracted.
  redis.call('PEXPIRE', KEYS[3], math.max(leaseMs * 2, totals and monthMs or 0))
  return member
end

if operation == 'settle' then
  local member, tokens, requests, mode = find(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
  local isHeld = member ~= '' and redis.call('ZREM', KEYS[3], member) == 1
  if not isHeld and mode == 'none' then return 0 end
  if not isHeld and mode == 'use' then
    local age = tonumber(ARGV[8])
    if age < windowMs then countInWindow(now - age, tonumber(ARGV[9]), tonumber(ARGV[10])) end
    addTotals(requests, tokens)
    return 1
  end
  local lease = readLease(member)
  replace(lease, tokens, isHeld)
  if isHeld and requests < 0 and lease.window == window.start then
    window.requests = math.max(0, window.requests + requests)
    keepWindow()
  end
  for _, index in ipairs(totals and TOTALS or {}) do
    if COUNTS[index] == 'requests' and amount(lease, index) == 1 then
      if isHeld then
        if requests < 0 then totals[index] = math.max(0, totals[index] + requests) end
      elseif isOlder(lease) then
        -- Redis was emptied meanwhile, and the store did not know a request that ran.
        totals[index] = totals[index] + 1
      end
    end
  end
  keepTotals()
  return 1
end

if operation == 'enter' then
  local id, tokens, age = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
  local member = find(id)
  if member ~= id then
    redis.call('ZADD', KEYS[3], now + leaseMs, member)
    return member
  end
  member = addLease(id, tokens, micros - age * 1000, now - age)
  local lease = readLease(member)
  if age < windowMs then countInWindow(window.start, 1, tokens) end
  for _, index in ipairs(totals and TOTALS or {}) do totals[index] = totals[index] + amount(lease, index) end
  keepTotals()
  return member
end

local slots = redis.call('ZCOUNT', KEYS[3], '(' .. text(now), now + leaseMs)
if slots < redis.call('ZCARD', KEYS[3]) then
  -- Leases whose process is gone. Those that expire later than a lease can were made before the clock was set back.
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 100)) do
    redis.call('ZREM', KEYS[3], member)
    replace(readLease(member), 0, true)
    keepTotals()
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. text(now + leaseMs), '+inf', 'LIMIT', 0, 100)) do
    redis.call('ZADD', KEYS[3], now + leaseMs, member)
  end
  slots = redis.call('ZCOUNT', KEYS[3], '(' .. text(now), '+inf')
end

local id, tokens = ARGV[4], tonumber(ARGV[5])
local known = ARGV[6 + #COUNTS]

-- Totals of the store. What was settled since may not have reached it, and what runs has not.
if known and (not totals or (not totals.known and known == '1')) then
  local reserved = running()
  if not totals then
    totals = {}
    redis.call('HSET', KEYS[2], 'e', micros)
    for _, index in ipairs(TOTALS) do totals[index] = reserved[index] end
  end
  for order, index in ipairs(TOTALS) do
    local before = tonumber(ARGV[6 + #COUNTS + order])
    totals[index] = math.max(totals[index] - reserved[index], before) + reserved[index]
  end
  totals.known, totals.isStored = known == '1', false
  redis.call('HSET', KEYS[2], 'k', known)
  keepTotals()
end

-- The lease that is to be changed, as far as it still exists: its request and its slot are counted already.
local old = operation == 'change' and readLease(id) or nil
local isHeld = old and redis.call('ZSCORE', KEYS[3], id) or false

-- The counts, in the order of the table.
local function used()
  local counts = {}
  for index = 1, #COUNTS do
    local counted = COUNTS[index]
    if WINDOWS[index] == 'minute' then counts[index] = window[counted]
    elseif counted == 'running' then counts[index] = slots
    else counts[index] = totals and totals[index] or 0 end
  end
  return counts
end

local counts, isAdmitted = used(), operation ~= 'peek'
for index = 1, #COUNTS do
  local limit, isTokens = tonumber(ARGV[5 + index]), COUNTS[index] == 'tokens'
  if limit >= 0 then
    local isTotal = current[WINDOWS[index]]
    if isTotal and not totals then return {} end
    local cost = isTokens and tokens or 1
    if isHeld and isTokens then
      if isTotal then cost = cost - amount(old, index)
      elseif old.window == window.start then cost = cost - old.tokens end
    end
    if (isTokens or not old) and counts[index] + cost > limit then isAdmitted = false end
  end
end

local member = ''
if isAdmitted then
  if isHeld then
    redis.call('ZREM', KEYS[3], id)
    replace(old, 0, true)
  else
    -- Where a lease that is to be changed has expired, its request runs all the same, and takes a slot again.
    slots = slots + 1
  end
  member = addLease(string.match(id, '^[^:]*'), tokens, micros, now)
  countInWindow(now, old and 0 or 1, tokens)
  addTotals((not old or not isHeld and isOlder(old)) and 1 or 0, tokens)
  counts = used()
end

local answer = {
  isAdmitted and 1 or 0,
  now,
  window.start > 0 and window.start + windowMs - now or 0,
  (not totals or totals.known) and 1 or 0,
  member,
}
for index = 1, #COUNTS do
  -- Clients do not read the largest integers exactly.
  answer[5 + index] = counts[index] > 1e15 and text(counts[index]) or counts[index]
end
return answer
