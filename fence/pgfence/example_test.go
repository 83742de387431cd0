package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
)

// A host takes a tile, or learns its owner. With an outcome that is unknown it makes the same claim
// again, which cannot mint twice. (Not run here, for want of a server; see sqlitefence for one that is.)
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	pool, err := pgxpool.New(ctx, "postgres://game@db.example:5432/game?connect_timeout=2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	authority, err := pgfence.New(pool, &pgfence.Config{Table: "game.tiles"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := authority.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	claim := fence.Claim{Tile: 0x85283473fffffff, Contact: "host-a:7000", ID: fence.NewClaimID()}
	grant, err := authority.Claim(ctx, claim)
	for errors.Is(err, fence.ErrUnknownOutcome) && ctx.Err() == nil {
		grant, err = authority.Claim(ctx, claim)
	}
	var lost *fence.LostError
	switch {
	case err == nil:
		fmt.Println("serving under epoch", grant.Epoch)
	case errors.As(err, &lost):
		fmt.Println("served by", lost.Current.Contact)
	default:
		fmt.Println(err)
	}
}
