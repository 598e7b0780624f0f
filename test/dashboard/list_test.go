package dashboard

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// list250 is a list of 250 objects, as the API returns them. said() returns the shown objects and the calls to the API.
const list250 = `
	let all = Array.from({length: 250}, (_, i) => ({id: String(i).padStart(3, '0'), on: true}));
	const asked = [];
	const client = {get: async (path, {q, limit, continue: after}) => {
		asked.push((after ?? 'start') + '+' + limit);
		const [fit, from] = [all.filter(({on}) => on), after ?? ''];
		const rest = fit.filter(({id}) => id > from);
		const items = rest.slice(0, limit);
		return {items, total: fit.length, continue: rest.length > limit ? items.at(-1).id : undefined};
	}};
	let changed = 0;
	const list = new List('things', (thing) => thing.id, (thing) => thing.on, () => changed++);
	const said = () => {
		const line = list.items.length + ' of ' + list.total + (list.more ? ', more' : '') + (changed ? ', changed' : '') +
			(asked.length ? ', asked ' + asked.join(' ') : '');
		changed = asked.length = 0;
		return line;
	};
	await list.find(client, {});
	said();`

func TestListShowsWhatTheAPIWould(t *testing.T) {
	b := withoutPage(t)
	for name, tc := range map[string]struct {
		script string
		wanted []string
	}{
		"one that does not match any more goes": {
			`list.put({id: '007', on: false}); return [said() + (list.get('007') ? ', kept' : '')];`,
			[]string{"99 of 249, more, changed"},
		},
		"one that is to be kept stays until the list is read anew, and is not brought back": {
			`list.keep('007');
			list.put(all[7] = {id: '007', on: false});
			const before = said() + (list.get('007').on ? '' : ', off');
			await list.again(client);
			list.keep('007');
			list.put(all[7]);
			return [before, said()];`,
			[]string{"100 of 250, more, off", "100 of 249, more, asked start+100"},
		},
		"what happens beyond the pages that are shown is counted by the API, once for all of it": {
			`all.push({id: '250', on: true}, {id: '251', on: true}, {id: '252', on: true});
			all.slice(-3).forEach((thing) => list.put(thing));
			all.splice(200, 2);
			list.drop('200');
			list.drop('201');
			const before = said();
			await Promise.all([list.recount(client), list.recount(client)]);
			const after = said();
			await list.recount(client);
			return [before, after, said()];`,
			[]string{"100 of 250, more, changed", "100 of 251, more, asked start+1", "100 of 251, more"},
		},
		"a change of what is shown needs no counting": {
			`list.put({id: '007', on: true}); await list.recount(client); return [said()];`,
			[]string{"100 of 250, more"},
		},
		"without more all are known": {
			`await list.next(client);
			await list.next(client);
			said();
			list.put({id: '300', on: true});
			list.drop('000');
			await list.recount(client);
			return [said()];`,
			[]string{"250 of 250"},
		},
		"a page that loses rows is filled again": {
			`all.slice(0, 100).forEach((thing) => { thing.on = false; list.put(thing); });
			const before = said();
			await list.recount(client);
			return [before, said() + ' from ' + list.items[0].id];`,
			[]string{"0 of 150, more, changed", "100 of 150, more, asked start+1 099+100 from 100"},
		},
		"when all that was beyond is gone there is no more": {
			`all.splice(100);
			list.drop('200');
			await list.recount(client);
			return [said()];`,
			[]string{"100 of 100, changed, asked start+1 099+1"},
		},
		"what comes where the last row was is shown": {
			`all.splice(99, 1, {id: '098a', on: true});
			list.drop('099');
			list.put(all[99]);
			const last = list.items.at(-1).id;
			await list.recount(client);
			return [last, said()];`,
			[]string{"098a", "100 of 250, more, changed, asked start+1"},
		},
		"a reading that is under way counts, and is not disturbed": {
			`list.drop('200');
			const reading = list.next(client);
			await Promise.all([list.recount(client), reading]);
			return [said()];`,
			[]string{"200 of 250, more, changed, asked 099+100"},
		},
		"a count that fails is tried again": {
			`const {get} = client;
			client.get = () => Promise.reject(new Error('unreachable'));
			all.pop();
			list.drop('249');
			await list.recount(client);
			client.get = get;
			await list.recount(client);
			return [said() + (list.problem ? ', a problem' : '')];`,
			[]string{"100 of 249, more, changed, asked start+1"},
		},
		"only who asks for more is shown that it is loading": {
			`let reading = list.again(client);
			const coming = [list.coming];
			list.next(client);
			coming.push(list.coming);
			await reading;
			coming.push(list.coming);
			return coming.map(String);`,
			[]string{"false", "true", "false"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			said := evaluate[[]string](b, `import('/list.js').then(async ({List}) => {`+list250+tc.script+`})`)
			require.Equal(t, tc.wanted, said)
		})
	}
}
