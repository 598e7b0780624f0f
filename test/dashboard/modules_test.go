package dashboard

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The modules' pure functions are tested in a browser, where they run.
func TestModules(t *testing.T) {
	b := withoutPage(t)
	const history = `{since: '2026-01-01T00:00:00Z', watchedSince: '2026-01-01T12:00:00Z', gaps: [
		{from: '2026-01-01T13:00:00Z', to: '2026-01-01T13:30:00Z', kind: 'Down'},
		{from: '2026-01-01T14:00:00Z', to: '2026-01-01T16:00:00Z', kind: 'Unobserved'}]}`
	for name, tc := range map[string]struct{ module, expression, wanted string }{
		"quantities of every kind are numbers": {
			"format", `['500m', '2', '64Gi', '1e3', '1.5k', '3E', '', undefined, 'much'].map(m.quantity)`,
			`[0.5, 2, 68719476736, 1000, 1500, 3e18, 0, 0, 0]`,
		},
		"bytes have a unit, other amounts do not": {
			"format", `[m.amount('memory', 2 ** 36), m.amount('cpu', 0.25), m.amount('hugepages-2Mi', 2 ** 21),
				m.amount('nvidia.com/gpu', 4), m.amount('memory', 0)]`,
			`["64 GiB", "0.25", "2 MiB", "4", "0 B"]`,
		},
		"two amounts share the unit of the whole": {
			"format", `[...m.amounts('memory', 2 ** 29, 2 ** 33), ...m.amounts('cpu', 1.5, 16), ...m.amounts('memory', 0, 0)]`,
			`["0.5", "8 GiB", "1.5", "16", "0", "0 B"]`,
		},
		"what was not always up is not 100 %": {
			"format", `[m.percent(1), m.percent(0.99999), m.percent(0.9), m.percent(0), m.percent(undefined)]`,
			`["100 %", "99.99 %", "90 %", "0 %", "–"]`,
		},
		"times are short": {
			"format", `[0, 59_000, 61_000, 7_200_000, 200_000_000].map(m.duration)`, `["0 s", "59 s", "1 min", "2 h", "2 d"]`,
		},
		"events come out of text that is cut anywhere": {
			"stream", `(() => {
				const p = new m.Parser();
				const text = ': hello\n\nevent: sync\ndata: {"version":"v1"}\n\nid: 3\r\nevent: provider\r\ndata: {"id":\r\n' +
					'data: "ü"}\r\n\r\nevent: x\n\n';
				return [...text].flatMap((c) => p.feed(c));
			})()`,
			`[{"event": "sync", "data": {"version": "v1"}}, {"event": "provider", "data": {"id": "ü"}}]`,
		},
		"a client above its rate waits for Retry-After and retries": {
			"api", `(async () => {
				const [real, began, asked] = [window.fetch, performance.now(), []];
				window.fetch = async (url, {headers}) => {
					asked.push(url.pathname + url.search + ' ' + headers.Authorization);
					return asked.length === 1 ? new Response('{}', {status: 429, headers: {'Retry-After': '1'}}) : new Response('[7]');
				};
				const client = new m.Client({token: 't', consumer: 'c'});
				const answer = await client.get('x', {q: 'a b', empty: '', none: undefined});
				window.fetch = real;
				return [answer, asked, performance.now() - began >= 1000];
			})()`,
			`[[7], ["/api/v1/x?consumer=c&q=a+b Bearer t", "/api/v1/x?consumer=c&q=a+b Bearer t"], true]`,
		},
		"a request has a timeout": {
			"api", `(async () => {
				const real = window.fetch;
				const late = (signal) => new Promise((resolve, reject) => {
					const end = () => reject(signal.reason);
					signal.aborted ? end() : signal.addEventListener('abort', end);
				});
				const client = new m.Client();
				client.patience = 20;
				window.fetch = (url, {signal}) => late(signal);
				const silent = await client.get('x').catch((err) => err);
				window.fetch = async (url, {signal}) => ({ok: true, json: () => late(signal)});
				const stuck = await client.put('x').catch((err) => err);
				client.patience = 60_000;
				const left = new AbortController();
				const reading = client.get('x', {}, left.signal).catch((err) => err);
				left.abort();
				const given = await reading;
				window.fetch = real;
				return [silent.status, silent.title, stuck.title, given.name];
			})()`,
			`[0, "The catalog takes too long", "The catalog takes too long", "AbortError"]`,
		},
		"the message of a problem has all its errors": {
			"api", `(async () => {
				const real = window.fetch;
				window.fetch = async () => new Response(JSON.stringify({title: 'Unprocessable', detail: 'not valid',
					errors: [{location: 'query.limit', message: 'too large'}]}),
					{status: 422, headers: {'Content-Type': 'application/problem+json'}});
				const problem = await new m.Client().get('x').catch((err) => err);
				window.fetch = real;
				return [problem.status, problem.title, problem.message];
			})()`,
			`[422, "Unprocessable", "not valid; query.limit: too large"]`,
		},
		"uptime is of what was watched": {
			"charts", `m.uptimeSlots(` + history + `, 12 * 3_600_000, Date.parse('2026-01-01T18:00:00Z')).slice(14, 27)`,
			// Slots of 24 minutes from 11:36: watched from 12:00, down from 13:00 to 13:30, unseen from 14:00 to 16:00.
			`["unseen", 1, 1, 0.5, 0.25, 1, "unseen", "unseen", "unseen", "unseen", "unseen", 1, 1]`,
		},
		"the shortest window that has all that was watched is shown": {
			"charts", `['2026-01-01T17:30:00Z', '2026-01-01T12:00:00Z', '2025-12-28T00:00:00Z', '2025-01-01T00:00:00Z']
				.map((watchedSince) => m.windowOf({watchedSince}, Date.parse('2026-01-01T18:00:00Z')).name)`,
			`["1 h", "24 h", "7 d", "30 d"]`,
		},
		"small flows are drawn together, and no pod is lost": {
			"flow", `(() => {
				const s = m.summed(Array.from({length: 40}, (_, i) =>
					({consumer: 'c' + i % 9, provider: i % 20 ? 'p' + i % 20 : '', pods: i + 1})));
				const {consumer, provider} = s.names;
				const drawn = s.flows.reduce((sum, f) => sum + f.pods, 0);
				return [s.total, drawn, consumer.length, provider.length, provider.slice(-2)];
			})()`,
			`[820, 820, 7, 12, ["9 others", "waiting"]]`,
		},
		"all that is drawn together is counted": {
			"flow", `[m.inWords(m.summed(Array.from({length: 10_000}, (_, i) =>
				({consumer: 'c' + i % 8, provider: i % 1000 ? 'p' + i % 1000 : '', pods: 1}))))]`,
			`["10,000 pods of 8 consumers on 999 providers"]`,
		},
		"ribbons meet their boxes and stay in the picture": {
			"flow", `(() => {
				const p = m.layout(m.summed([{consumer: 'a', provider: 'x', pods: 900}, {consumer: 'b', provider: 'x', pods: 1},
					{consumer: 'b', provider: '', pods: 50}]), 800);
				const boxes = [...p.boxes.consumer.values(), ...p.boxes.provider.values()];
				return [p.ribbons.length, boxes.every((box) => Math.abs(box.filled - box.height) < 1e-6),
					boxes.every((box) => box.y >= 0 && box.y + box.height <= p.height)];
			})()`,
			`[6, true, true]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := evaluate[json.RawMessage](b, fmt.Sprintf(`import('/%s.js').then((m) => %s)`, tc.module, tc.expression))
			require.JSONEq(t, tc.wanted, string(got))
		})
	}
}

// A list reads pages and receives changes at the same time.
func TestListKeepsWhatHappensWhileItReads(t *testing.T) {
	b := withoutPage(t)
	const script = `import('/list.js').then(async ({List}) => {
		const list = new List('things', (thing) => thing.id, (thing, query) => !query.q || thing.id.includes(query.q));
		const waiting = [];
		const client = {get: (path, query, signal) => new Promise((resolve) => waiting.push(resolve))};
		const shown = () => list.items.filter(({v}) => v).map(({id, v}) => id + v).join(' ') + ' of ' + list.total;
		const many = Array.from({length: 97}, (_, i) => ({id: 'a' + String(i).padStart(2, '0')})); // Not looked at.
		const said = [];

		let read = list.find(client, {});
		list.put({id: 'b', v: 2});   // newer than what the answer will say
		list.drop('c');              // gone, though the answer still has it
		waiting.shift()({items: [{id: 'a', v: 1}, ...many, {id: 'b', v: 1}, {id: 'c', v: 1}], total: 101, continue: 'c'});
		await read;
		said.push(shown());

		list.put({id: 'z', v: 1});   // beyond what is shown
		list.put({id: 'aa', v: 1});  // within
		said.push(shown());

		read = list.next(client);
		waiting.shift()({items: [{id: 'd', v: 1}, {id: 'z', v: 1}], total: 102});
		await read;
		said.push(shown() + ' more ' + list.more);

		const overtaken = list.find(client, {q: 'a'});
		read = list.find(client, {q: 'z'});
		const [first, second] = waiting.splice(0);
		second({items: [{id: 'z', v: 3}], total: 1});
		await read;
		first({items: [{id: 'a', v: 3}], total: 1});
		await overtaken;
		list.put({id: 'b', v: 9});   // does not match
		said.push(shown());
		return said;
	})`
	require.Equal(t, []string{
		"a1 b2 of 100", "a1 aa1 b2 of 101", "a1 aa1 b2 d1 z1 of 102 more false", "z3 of 1",
	}, evaluate[[]string](b, script))
}

// A click on "Load more" while the list is read for another reason, for example after a reconnection, is not lost.
func TestListReadsWhatIsAskedForMeanwhile(t *testing.T) {
	b := withoutPage(t)
	const script = `import('/list.js').then(async ({List}) => {
		const all = Array.from({length: 950}, (_, i) => ({id: String(i).padStart(3, '0')}));
		const list = new List('things', (thing) => thing.id, () => true);
		let asked = [];
		const client = {get: async (path, {limit, continue: after}) => {
			asked.push((after ?? 'start') + '+' + limit);
			const from = after ? Number(after) : 0;
			const end = from + limit;
			return {items: all.slice(from, end), total: all.length, continue: end < all.length ? String(end) : undefined};
		}};
		const said = [];
		const done = async (reading) => {
			await reading;
			said.push(asked.join(' ') + ': ' + list.items.length + (list.more ? ', more' : ''));
			asked = [];
		};
		await done(list.find(client, {}));

		let reading = list.again(client);
		list.next(client);
		list.next(client); // Asked for already.
		await done(reading);

		list.next(client);
		await done(list.again(client)); // Overtakes it, and reads as much.

		for (let pages = 0; pages < 4; pages++) {
			await list.next(client);
		}
		asked = [];
		await done(list.again(client)); // More than the API gives at once.

		reading = list.next(client);
		list.drop('000');
		await done(reading);
		await list.next(client);
		await list.next(client);
		asked = [];
		await done(list.next(client)); // There are no more.

		await done(list.find(client, {q: ''}));
		return said;
	})`
	require.Equal(t, []string{
		"start+100: 100, more",
		"start+100 100+100: 200, more",
		"200+100 start+300: 300, more",
		"start+500 500+200: 700, more",
		"700+100 800+1: 800, more", // One of them was dropped.
		": 949",
		"start+100: 100, more",
	}, evaluate[[]string](b, script))
}
