package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	_ "modernc.org/sqlite" // The driver "sqlite".

	"github.com/capacitorset/liqo-broker-vk/pkg/price"
)

// schema is created in an empty file. A later version of it gets the next schemaVersion and a migration.
const schema = `
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE segments (
  uid TEXT NOT NULL, start INTEGER NOT NULL, stop INTEGER, assigned INTEGER NOT NULL,
  consumer TEXT NOT NULL, namespace TEXT NOT NULL, pod TEXT NOT NULL, workload TEXT NOT NULL, provider TEXT NOT NULL,
  requests TEXT NOT NULL, PRIMARY KEY (uid, start)
) WITHOUT ROWID;
CREATE INDEX segments_stop ON segments (stop);
CREATE INDEX segments_start ON segments (start);
CREATE TABLE prices (provider TEXT NOT NULL, observed INTEGER NOT NULL, lists TEXT NOT NULL, PRIMARY KEY (provider, observed));
INSERT INTO meta VALUES ('schema', '1'), ('epoch', '0');
`

const schemaVersion = "1"

// ErrFenced means that another broker writes the ledger: this one leads no more.
var ErrFenced = errors.New("another broker writes the ledger")

// Store is a ledger in a SQLite file. One Store at a time writes it: the last that called Lead.
type Store struct {
	db *sql.DB
	// epoch is what Lead wrote; 0 if it was not called.
	epoch int64
}

// Open opens the ledger in a file, and creates it if there is none.
func Open(ctx context.Context, file string) (*Store, error) {
	return open(ctx, file, url.Values{
		"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(5000)"}, "_txlock": {"immediate"},
	})
}

// OpenReadOnly opens the ledger in a file that exists, also while a broker writes it.
func OpenReadOnly(ctx context.Context, file string) (*Store, error) {
	return open(ctx, file, url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)", "query_only(true)"}})
}

func open(ctx context.Context, file string, options url.Values) (*Store, error) {
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: url.PathEscape(file), RawQuery: options.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("ledger %s: %w", file, err)
	}
	db.SetMaxOpenConns(1)
	s := &Store{db: db}
	if err := s.prepare(ctx, options.Get("mode") != "ro"); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger %s: %w", file, err), db.Close())
	}
	return s, nil
}

// prepare creates the tables in an empty file, and refuses a file of a later version.
func (s *Store) prepare(ctx context.Context, create bool) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		var tables int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE type = 'table'`).Scan(&tables); err != nil {
			return err
		}
		if tables == 0 && create {
			_, err := tx.ExecContext(ctx, schema)
			return err
		}
		version, err := metaOf(ctx, tx, "schema")
		if err == nil && version != schemaVersion {
			err = fmt.Errorf("it has version %s of the schema, and this program knows version %s", version, schemaVersion)
		}
		return err
	})
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

func (s *Store) transact(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func metaOf(ctx context.Context, in querier, key string) (value string, err error) {
	err = in.QueryRowContext(ctx, `SELECT value FROM meta WHERE key = ?`, key).Scan(&value)
	if err != nil {
		err = fmt.Errorf("its table meta has no %s: %w", key, err)
	}
	return value, err
}

// Lead makes this Store the only one that may write, and returns the segments that are open, and until when the
// earlier writer saw their pods; zero if there was none.
func (s *Store) Lead(ctx context.Context) (open []Segment, alive time.Time, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		text, err := metaOf(ctx, tx, "epoch")
		if err != nil {
			return err
		}
		before, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		s.epoch = before + 1
		if _, err := tx.ExecContext(ctx, `UPDATE meta SET value = ? WHERE key = 'epoch'`, strconv.FormatInt(s.epoch, 10)); err != nil {
			return err
		}
		if alive, err = aliveOf(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, selectSegments+` WHERE stop IS NULL`)
		if err != nil {
			return err
		}
		for s, err := range scan(rows) {
			if err != nil {
				return err
			}
			open = append(open, s)
		}
		return nil
	})
	return open, alive, err
}

// Last returns the last segment of a pod; nil if there is none.
func (s *Store) Last(ctx context.Context, uid types.UID) (last *Segment, err error) {
	rows, err := s.db.QueryContext(ctx, selectSegments+` WHERE uid = ? ORDER BY start DESC LIMIT 1`, string(uid))
	if err != nil {
		return nil, err
	}
	for segment, err := range scan(rows) {
		if err != nil {
			return nil, err
		}
		last = &segment
	}
	return last, nil
}

// Write writes changed segments, and that their pods were seen until now. It answers ErrFenced if another Store leads.
// It can be repeated. A segment that has ended stays as it is.
func (s *Store) Write(ctx context.Context, now time.Time, changed []Segment, prices map[string]PriceChange) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		epoch, err := metaOf(ctx, tx, "epoch")
		if err != nil {
			return err
		}
		if epoch != strconv.FormatInt(s.epoch, 10) {
			return ErrFenced
		}
		insert, err := tx.PrepareContext(ctx, `INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (uid, start) DO UPDATE SET stop = excluded.stop WHERE segments.stop IS NULL`)
		if err != nil {
			return err
		}
		defer insert.Close()
		for i := range changed {
			if err := insertSegment(ctx, insert, &changed[i]); err != nil {
				return err
			}
		}
		for provider, change := range prices {
			text, err := json.Marshal(change.Lists)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO prices VALUES (?, ?, ?)`, provider, change.At.UnixMilli(), string(text))
			if err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO meta VALUES ('alive', ?)`, strconv.FormatInt(now.UnixMilli(), 10))
		return err
	})
}

func insertSegment(ctx context.Context, insert *sql.Stmt, s *Segment) error {
	requests, err := json.Marshal(s.Requests)
	if err != nil {
		return err
	}
	var stop any
	if !s.Stop.IsZero() {
		stop = s.Stop.UnixMilli()
	}
	_, err = insert.ExecContext(ctx, string(s.UID), s.Start.UnixMilli(), stop, s.Assigned.UnixNano(),
		s.Consumer, s.Namespace, s.Pod, s.Workload, s.Provider, string(requests))
	return err
}

// Forget deletes the segments of pods whose last one ended before a time, and the prices that were replaced before it.
func (s *Store) Forget(ctx context.Context, before time.Time) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM segments WHERE stop < ?1 AND NOT EXISTS (
			SELECT 1 FROM segments AS other WHERE other.uid = segments.uid AND (other.stop IS NULL OR other.stop >= ?1))`,
			before.UnixMilli())
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM prices WHERE EXISTS (
			SELECT 1 FROM prices AS other WHERE other.provider = prices.provider AND other.observed > prices.observed
			AND other.observed < min(?, coalesce((SELECT min(start) FROM segments WHERE segments.provider = prices.provider), ?)))`,
			before.UnixMilli(), before.UnixMilli())
		return err
	})
}

// Alive returns until when the writer has seen the pods of open segments; zero if nothing was written.
func (s *Store) Alive(ctx context.Context) (time.Time, error) { return aliveOf(ctx, s.db) }

func aliveOf(ctx context.Context, in querier) (time.Time, error) {
	text, err := metaOf(ctx, in, "alive")
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	at, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(at), err
}

const selectSegments = `SELECT uid, start, stop, assigned, consumer, namespace, pod, workload, provider, requests FROM segments`

// Segments calls each with the segments that overlap a time, by their start, until it returns an error. It keeps none in
// memory.
func (s *Store) Segments(ctx context.Context, from, to time.Time, consumer *string, each func(*Segment) error) error {
	// Without the + SQLite would read all segments before to, by the index of start.
	query, args := selectSegments+` WHERE +start < ? AND (stop IS NULL OR stop > ?)`, []any{to.UnixMilli(), from.UnixMilli()}
	if consumer != nil {
		query, args = query+` AND consumer = ?`, append(args, *consumer)
	}
	rows, err := s.db.QueryContext(ctx, query+` ORDER BY start, uid`, args...)
	if err != nil {
		return err
	}
	for segment, err := range scan(rows) {
		if err != nil {
			return err
		}
		if err := each(&segment); err != nil {
			return err
		}
	}
	return nil
}

// scan returns the segments of rows, and closes them.
func scan(rows *sql.Rows) func(yield func(Segment, error) bool) {
	return func(yield func(Segment, error) bool) {
		defer rows.Close()
		for rows.Next() {
			var s Segment
			var uid, requests string
			var start, assigned int64
			var stop sql.NullInt64
			err := rows.Scan(&uid, &start, &stop, &assigned, &s.Consumer, &s.Namespace, &s.Pod, &s.Workload, &s.Provider, &requests)
			if err == nil {
				err = json.Unmarshal([]byte(requests), &s.Requests)
			}
			s.UID, s.Start, s.Assigned = types.UID(uid), time.UnixMilli(start), time.Unix(0, assigned)
			if stop.Valid {
				s.Stop = time.UnixMilli(stop.Int64)
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Segment{}, err)
		}
	}
}

// Prices returns the prices of all providers, as they were observed.
func (s *Store) Prices(ctx context.Context) (*Prices, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT provider, observed, lists FROM prices ORDER BY provider, observed`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	prices := NewPrices()
	for rows.Next() {
		var provider, text string
		var observed int64
		var lists price.Lists
		if err := rows.Scan(&provider, &observed, &text); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(text), &lists); err != nil {
			return nil, fmt.Errorf("prices of provider %s: %w", provider, err)
		}
		prices.Observe(provider, time.UnixMilli(observed), lists)
	}
	return prices, rows.Err()
}
