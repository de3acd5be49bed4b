// Evaluates PromQL expressions with Prometheus' own engine, over series that a test provides.
//
// Standard input is JSON: {"step": seconds, "steps": number of steps, "series": [{"labels", "values"}],
// "queries": [...], "rules": YAML}. A series has one value for each step, or null if there is none.
// Standard output is JSON: {"complaints": errors in the rules, "answers": for each query {"error",
// "metrics": names of the metrics that it uses, "points": one list for each step}}.
package main

import (
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

type question struct {
	Step    int64
	Steps   int
	Series  []given
	Queries []string
	Rules   string
}

type given struct {
	Labels map[string]string
	Values []*float64
}

type point struct {
	Labels map[string]string `json:"labels"`
	Value  string            `json:"value"`
}

type answer struct {
	Error   string    `json:"error"`
	Metrics []string  `json:"metrics"`
	Points  [][]point `json:"points"`
}

type found struct {
	storage.SeriesSet
	left []storage.Series
	at   storage.Series
}

func (f *found) Next() bool {
	if len(f.left) == 0 {
		return false
	}
	f.at, f.left = f.left[0], f.left[1:]
	return true
}

func (f *found) At() storage.Series                { return f.at }
func (f *found) Err() error                        { return nil }
func (f *found) Warnings() annotations.Annotations { return nil }

// series converts the input to series of the engine.
func (q question) series() (all []storage.Series) {
	for _, each := range q.Series {
		series := promql.Series{Metric: labels.FromMap(each.Labels)}
		for n, value := range each.Values {
			if value != nil {
				series.Floats = append(series.Floats, promql.FPoint{T: int64(n) * q.Step * 1000, F: *value})
			}
		}
		all = append(all, promql.NewStorageSeries(series))
	}
	return all
}

func queryable(all []storage.Series) storage.Queryable {
	choose := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var chosen []storage.Series
	next:
		for _, series := range all {
			for _, matcher := range matchers {
				if !matcher.Matches(series.Labels().Get(matcher.Name)) {
					continue next
				}
			}
			chosen = append(chosen, series)
		}
		return &found{left: chosen}
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: choose}}
}

func evaluate(query string, data storage.Queryable, step int64, steps int) (a answer) {
	a = answer{Metrics: []string{}, Points: [][]point{}}
	language := parser.NewParser(parser.Options{})
	expression, err := language.ParseExpr(query)
	if err != nil {
		return answer{Error: err.Error()}
	}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			a.Metrics = append(a.Metrics, selector.Name)
		}
		return nil
	})
	engine := promql.NewEngine(promql.EngineOpts{
		Parser: language, MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
	})
	for n := range steps {
		at := time.Unix(int64(n)*step, 0)
		instant, err := engine.NewInstantQuery(context.Background(), data, nil, query, at)
		if err != nil {
			return answer{Error: err.Error()}
		}
		vector, err := instant.Exec(context.Background()).Vector()
		if err != nil {
			return answer{Error: err.Error()}
		}
		points := []point{}
		for _, sample := range vector {
			points = append(points, point{sample.Metric.Map(), model.SampleValue(sample.F).String()})
		}
		a.Points = append(a.Points, points)
	}
	return a
}

func main() {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	complaints, answers := []string{}, []answer{}
	_, errs := rulefmt.Parse([]byte(asked.Rules), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	for _, err := range errs {
		complaints = append(complaints, err.Error())
	}
	data := queryable(asked.series())
	for _, query := range asked.Queries {
		answers = append(answers, evaluate(query, data, asked.Step, asked.Steps))
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"complaints": complaints, "answers": answers}); err != nil {
		log.Fatal(err)
	}
}
