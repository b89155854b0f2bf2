package load

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Options are the user's choices for a load.
type Options struct {
	Requests    []Request     // at least one
	Rate        float64       // requests a second; 0: about two in flight, at most 20 a second
	Timeout     time.Duration // of a request; 0: DefaultTimeout
	Descriptors string        // Load.Descriptors
}

// Check fills in defaults and returns all errors.
func (o *Options) Check() error {
	var errs []error
	if len(o.Requests) == 0 {
		errs = append(errs, errors.New("missing --request: a request that the app answers, as --request 'GET /'"))
	}
	if o.Rate < 0 || o.Rate > MaxRate {
		errs = append(errs, fmt.Errorf("--load is %g/s: must be more than 0, at most %g/s", o.Rate, MaxRate))
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.Timeout < time.Second || o.Timeout > time.Hour {
		errs = append(errs, fmt.Errorf("--timeout is %v: must be 1s to 1h", o.Timeout))
	}
	return errors.Join(errs...)
}

// OptionError is about an option's value.
type OptionError struct{ Err error }

func (e OptionError) Error() string { return e.Err.Error() }

func (e OptionError) Unwrap() error { return e.Err }
