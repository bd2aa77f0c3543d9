// Program goclient: clickhouse-go over HTTP. Its argument is a compression, or grafana: the options
// with which Grafana's ClickHouse plugin opens it (gzip, a row limit, products in its name).
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

type task struct {
	Host         string              `json:"host"`
	Port         int                 `json:"port"`
	User         string              `json:"user"`
	Password     string              `json:"password"`
	Database     string              `json:"database"`
	View         string              `json:"view"`
	Trees        map[string][]string `json:"trees"`
	Views        map[string]string   `json:"views"`
	Types        string              `json:"types"`
	FurtherTypes string              `json:"further_types"`
	Text         string              `json:"text"`
	Number       int64               `json:"number"`
	Limit        int                 `json:"limit"`
	Long         string              `json:"long"`
	Stream       string              `json:"stream"`
	Wrong        string              `json:"wrong"`
	Write        string              `json:"write"`
}

var methods = map[string]clickhouse.CompressionMethod{
	"none":    clickhouse.CompressionNone,
	"gzip":    clickhouse.CompressionGZIP,
	"lz4":     clickhouse.CompressionLZ4,
	"zstd":    clickhouse.CompressionZSTD,
	"grafana": clickhouse.CompressionGZIP,
}

func (given task) open(variant, user, password string, settings clickhouse.Settings) *sql.DB {
	options := &clickhouse.Options{
		Addr:        []string{fmt.Sprintf("%s:%d", given.Host, given.Port)},
		Auth:        clickhouse.Auth{Database: given.Database, Username: user, Password: password},
		Protocol:    clickhouse.HTTP,
		Compression: &clickhouse.Compression{Method: methods[variant]},
		DialTimeout: 10 * time.Second,
		ReadTimeout: 60 * time.Second,
		Settings:    settings,
	}
	if variant == "grafana" {
		type product = struct{ Name, Version string }
		options.ClientInfo.Products = []product{{"grafana", "12.2.0"}, {"clickhouse-datasource", "4.20.0"}}
	}
	return clickhouse.OpenDB(options)
}

func one(db *sql.DB, query string, arguments ...any) ([]any, error) {
	rows, err := all(context.Background(), db, query, arguments...)
	if err != nil || len(rows) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%d rows", len(rows)))
	}
	return rows[0], nil
}

func all(ctx context.Context, db *sql.DB, query string, arguments ...any) ([][]any, error) {
	rows, err := db.QueryContext(ctx, query, arguments...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, err
	}
	var found [][]any
	for rows.Next() {
		values := make([]any, len(types))
		for at, kind := range types {
			values[at] = reflect.New(kind.ScanType()).Interface()
		}
		if err := rows.Scan(values...); err != nil {
			return nil, err
		}
		found = append(found, values)
	}
	return found, rows.Err()
}

func text(value any) *string {
	for inner := reflect.ValueOf(value); ; inner = inner.Elem() {
		if inner.Kind() != reflect.Pointer {
			found := fmt.Sprint(inner.Interface())
			return &found
		}
		if inner.IsNil() {
			return nil
		}
	}
}

func texts(values []any, err error) (any, error) {
	found := make([]*string, len(values))
	for at, value := range values {
		found[at] = text(value)
	}
	return found, err
}

func refusal(_ any, err error) (any, error) {
	if err == nil {
		return nil, errors.New("it was not refused")
	}
	return err.Error(), nil
}

func names(db *sql.DB, queries []string) (any, error) {
	found := []string{}
	for _, query := range queries {
		rows, err := all(context.Background(), db, query)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", query, err)
		}
		for _, row := range rows {
			if name := text(row[0]); name != nil {
				found = append(found, *name)
			}
		}
	}
	return found, nil
}

func views(db *sql.DB, queries map[string]string) (any, error) {
	found := map[string]int{}
	for view, query := range queries {
		rows, err := all(context.Background(), db, query)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", view, err)
		}
		found[view] = len(rows)
	}
	return found, nil
}

func stream(db *sql.DB, query string) (any, error) {
	rows, err := db.Query(query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var count, total, number uint64
	for rows.Next() {
		if err := rows.Scan(&number); err != nil {
			return nil, err
		}
		count, total = count+1, total+number
	}
	return []uint64{count, total}, rows.Err()
}

func types(db *sql.DB, given task) (any, error) {
	first, err := texts(one(db, given.Types))
	if err != nil {
		return nil, err
	}
	further, err := one(db, given.FurtherTypes)
	return map[string]any{"compared": first, "further": len(further)}, err
}

func number(db *sql.DB, query string) (any, error) {
	var found int
	err := db.QueryRow(query).Scan(&found)
	return found, err
}

func version(db *sql.DB) (any, error) {
	var found string
	err := db.QueryRow("SELECT version()").Scan(&found)
	return found, err
}

func operations(given task, variant string) map[string]func() (any, error) {
	db := given.open(variant, given.User, given.Password, nil)
	nobody := given.open(variant, "default", "", nil)
	limit := clickhouse.Settings{"max_result_rows": given.Limit, "result_overflow_mode": "break"}
	if variant == "grafana" {
		limit = clickhouse.Settings{"limit": given.Limit}
	}
	few := given.open(variant, given.User, given.Password, limit)
	hasty := given.open(variant, given.User, given.Password, clickhouse.Settings{"max_execution_time": 1})
	bound := clickhouse.Context(context.Background(), clickhouse.WithParameters(clickhouse.Parameters{
		"n": fmt.Sprint(given.Number), "t": given.Text,
	}))
	found := map[string]func() (any, error){
		"connect_without_password": func() (any, error) { return number(nobody, "SELECT 1") },
		"connect_as_reader": func() (any, error) {
			if err := db.Ping(); err != nil {
				return nil, err
			}
			return number(db, "SELECT 1")
		},
		"version": func() (any, error) { return version(db) },
		"views":   func() (any, error) { return views(db, given.Views) },
		"types":   func() (any, error) { return types(db, given) },
		"client_parameters": func() (any, error) {
			return texts(one(db, "SELECT ?, ?", given.Number, given.Text))
		},
		"server_parameters": func() (any, error) {
			rows, err := all(bound, db, "SELECT {n:UInt64}, {t:String}")
			if err != nil || len(rows) == 0 {
				return nil, err
			}
			return texts(rows[0], nil)
		},
		"limit": func() (any, error) {
			rows, err := all(context.Background(), few, "SELECT number FROM numbers(1000000)")
			return len(rows), err
		},
		"timeout": func() (any, error) { return refusal(one(hasty, given.Long)) },
		"cancel": func() (any, error) {
			ctx, stop := context.WithTimeout(context.Background(), time.Second)
			defer stop()
			return refusal(all(ctx, db, given.Long))
		},
		"stream":        func() (any, error) { return stream(db, given.Stream) },
		"wrong_sql":     func() (any, error) { return refusal(one(db, given.Wrong)) },
		"write_refused": func() (any, error) { return refusal(db.Exec(given.Write)) },
	}
	for operation, queries := range given.Trees {
		found[operation] = func() (any, error) { return names(db, queries) }
	}
	return found
}

func main() {
	var given task
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		panic(err)
	}
	out := json.NewEncoder(os.Stdout)
	for name, operation := range operations(given, os.Args[1]) {
		detail, err := operation()
		line := map[string]any{"operation": name, "ok": err == nil, "detail": detail}
		if err != nil {
			line["detail"] = err.Error()
		}
		if err := out.Encode(line); err != nil {
			panic(err)
		}
	}
}
